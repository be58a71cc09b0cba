"use strict";
/* The trees' data. Each tree stands in the page as base64 of zlib-compressed JSON (see trees.py, which says what
   is in it) and is unpacked when it is first looked at. */

const unpacked = new Map();

/** The data of the tree in this article, as a promise. */
function treeData(article) {
  if (!unpacked.has(article)) unpacked.set(article, unpack(article.querySelector("script.packed").textContent));
  return unpacked.get(article);
}

async function unpack(base64) {
  const bytes = Uint8Array.from(atob(base64.trim()), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const data = await new Response(stream).json();
  data.node = new Map(data.nodes.map((node) => [node.node_id, node]));
  data.edge = new Map(data.edges.map((edge) => [edge.edge_id, edge]));
  data.edgeTo = new Map(data.edges.filter((edge) => edge.child_id !== null).map((edge) => [edge.child_id, edge]));
  data.value = new Map(data.values.map((value) => [value.node_id, value]));
  return data;
}
