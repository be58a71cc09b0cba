/* The page as a whole: one tree is shown at a time, and the address after # says which, and which node of it:
   #r0, #r0-n5 (node 5 of the first root), #r0-e7 (the pruned fork that was edge 7). */

const articles = [...document.querySelectorAll("article.root")];
const grids = new Map();
const NARROW = matchMedia("(max-width: 61.99rem)"); // as in page.css: details stand below the table, out of sight

/** Show what is told of a line of a tree's table. */
async function tell(article, row) {
  const place = articles.indexOf(article);
  const panel = article.querySelector(".details");
  article.dataset.chosen = row.id;
  for (const mark of article.querySelectorAll("svg .chosen")) mark.classList.remove("chosen");
  const [, kind, id] = row.id.match(/-([ne])(\d+)$/);
  bringIntoView(article.querySelector(`svg [data-${kind === "n" ? "node" : "edge"}="${id}"]`));
  let content;
  try {
    const data = await treeData(article);
    const node = kind === "n" ? data.node.get(Number(id)) : null;
    const edge = kind === "n" ? data.edgeTo.get(Number(id)) : data.edge.get(Number(id));
    content = details(place, data, edge, node);
  } catch (error) {
    content = [el("p", { class: "cut" }, `This browser cannot unpack the tree's data (${error.message}). A newer one can.`)];
  }
  if (article.dataset.chosen !== row.id) return; // another was chosen meanwhile
  panel.replaceChildren(...content.flat(Infinity).filter(Boolean),
    el("p", { class: "back" }, el("a", { href: `#${row.id}`, "data-back": true }, "Back to the tree")));
}

/** Mark a node of the picture, and scroll a picture that is wider than the page sideways to it. */
function bringIntoView(mark) {
  if (!mark) return;
  mark.classList.add("chosen");
  const figure = mark.closest("figure");
  const [place, frame] = [mark.getBoundingClientRect(), figure.getBoundingClientRect()];
  if (place.left < frame.left || place.right > frame.right) figure.scrollLeft += place.left - frame.left - frame.width / 2;
}

/** Go to what is told of the chosen line, once it is there. */
async function enterDetails(article) {
  await treeData(article).catch(() => null);
  const panel = article.querySelector(".details");
  (panel.querySelector("h4") ?? panel).focus();
}

function toTree(article) {
  document.getElementById(article.dataset.chosen).focus();
}

/** Show this tree in place of the others, and choose a line of it. */
function show(article, row, andFocus) {
  for (const other of articles) other.classList.toggle("current", other === article);
  for (const link of document.querySelectorAll(".picker a")) {
    if (link.hash === `#${article.id}`) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  const chosen = row ?? document.getElementById(article.dataset.chosen ?? "") ?? firstChoice(article);
  if (!chosen) return;
  grids.get(article).mark(chosen);
  tell(article, chosen);
  if (andFocus && row) row.focus();
}

/** The end of the best path, where there is one. */
function firstChoice(article) {
  return article.querySelector('.tree [data-rank="1"]') ?? article.querySelector(".tree tbody tr");
}

function follow(andFocus) {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const article = target?.closest("article.root");
  if (!article) return;
  const row = target.closest(".tree tbody tr");
  show(article, row, andFocus);
  if (!row) {
    article.scrollIntoView();
    if (andFocus) article.focus({ preventScroll: true });
  }
}

document.documentElement.classList.add("scripted");
for (const article of articles) {
  const body = article.querySelector(".tree tbody");
  if (!body) continue;
  grids.set(article, treegrid(body, (row) => {
    history.replaceState(null, "", `#${row.id}`);
    tell(article, row);
  }, () => enterDetails(article), () => { if (NARROW.matches) enterDetails(article); }));
  article.querySelector("svg").addEventListener("click", (event) => {
    const mark = event.target.closest("[data-node], [data-edge]");
    if (mark) location.hash = mark.dataset.node ? `#${article.id}-n${mark.dataset.node}` : `#${article.id}-e${mark.dataset.edge}`;
  });
  article.querySelector(".details").addEventListener("keydown", (event) => { if (event.key === "Escape") toTree(article); });
  article.querySelector(".details").addEventListener("click", (event) => {
    if (!event.target.closest("[data-back]")) return;
    event.preventDefault();
    toTree(article);
  });
}
window.addEventListener("hashchange", () => follow(true));
if (articles.length) {
  show(articles.find((article) => grids.has(article)) ?? articles[0], null, false);
  follow(false);
}
