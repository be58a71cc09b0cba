/* What is told of one node, or of one pruned fork: why it is there, its numbers, and per turn the code diff and the
   transcript. ``place`` is the root's place in the page, by which nodes are linked to (#r0-n5). */

const FAILURES = {
  no_score: () => "a turn ended without a numeric score",
  tool_errors: (edge, search) =>
    `${edge.failed_tool_calls} of ${edge.tool_calls} tool calls failed, a rate of ${number(edge.tool_error_rate, 3)} ` +
    `where ${number(search.max_tool_error_rate ?? 0.3, 3)} is allowed`,
};
const KEPT = {
  fallback: "It was kept all the same: the second try of a direction from the root always makes a child.",
  exemption: "It was kept all the same: edges this near to the root are never pruned.",
};
const LEAVES = {
  token_limit: "A good leaf: its session has reached the token limit.",
  depth_limit: "A good leaf: it is as deep as the search goes.",
  exhausted: "A good leaf: too many forks of it failed.",
  open: "An open leaf: the search stopped while it was still a candidate, so the path to it is no candidate.",
};
const ROLES = { system: "System prompt", user: "Prompt", assistant: "Agent", tool: "Tool" };
const LONG = { lines: 24, characters: 2400 };

/** Whether transcripts stay open from node to node. */
let transcriptsOpen = false;

function details(place, data, edge, node) {
  const title = node ? (edge ? `Node ${node.node_id}` : "Root") : `Pruned fork of ${named(edge.parent_id)}`;
  return [
    el("h4", { tabindex: "-1" }, title),
    breadcrumb(place, data, node ? node.node_id : edge.parent_id, !node),
    el("h5", {}, node ? "Why it is there" : "Why it was pruned"),
    why(data, edge, node),
    node ? standing(data, node) : null,
    el("h5", {}, "Numbers"),
    edge ? numbers(data, edge, node) : numbersOfRoot(data, node),
    edge ? edgeDiff(data, edge) : null,
    edge ? edge.turns.map((turn) => turnPart(data, edge, turn)) : null,
  ];
}

const named = (id) => (id === 0 ? "the root" : `node ${id}`);

/** The nodes from the root down, as links. */
function breadcrumb(place, data, id, isFork) {
  const ids = [];
  for (let node = data.node.get(id); node; node = data.node.get(node.parent_id)) ids.unshift(node.node_id);
  const steps = ids.map((step) => el("li", {}, step === id && !isFork
    ? el("span", { "aria-current": "true" }, step ? `Node ${step}` : "Root")
    : el("a", { href: `#r${place}-n${step}` }, step ? `Node ${step}` : "Root")));
  if (isFork) steps.push(el("li", {}, el("span", { "aria-current": "true" }, "Pruned fork")));
  return el("nav", { "aria-label": "Path from the root" }, el("ol", { class: "steps" }, steps));
}

function why(data, edge, node) {
  const said = [];
  if (!edge) {
    const { global_index, agent_id, stage, selection_reason } = data.chosen;
    const by = selection_reason === "quota" ? "within the quota of its stage" : "to fill up where a stage had too few";
    said.push(`Snapshot ${global_index} of ${agent_id}, chosen from the ${stage} stage ${by}.`);
  } else {
    said.push(`Forked from ${named(edge.parent_id)} in round ${edge.round}, as its ${ordinal(edge.expansion + 1)} fork.`);
    said.push(chosenParent(data, edge));
  }
  if (edge?.failure_reason) {
    const reason = FAILURES[edge.failure_reason]?.(edge, data.search) ?? edge.failure_reason;
    said.push(`It failed: ${reason}.`, KEPT[edge.kept_by] ?? "So it made no child.");
  }
  if (node?.leaf_kind) said.push(LEAVES[node.leaf_kind]);
  return [el("p", {}, said.filter(Boolean).join(" ")), node && edge ? paths(data, node) : null];
}

/** How the parent came to be given this fork: its place in the round's ranking. */
function chosenParent(data, edge) {
  const parent = data.rounds.find((row) => row.round === edge.round && row.node_id === edge.parent_id);
  if (edge.round === 1) return "In round 1 all directions from the root are tried.";
  if (!parent) return "";
  const alpha = number(data.search.token_bonus ?? 0.5);
  return `${edge.parent_id ? `Node ${edge.parent_id}` : "The root"} was ${ordinal(parent.place)} of ${parent.of} candidates: ` +
    `Select ${number(parent.select, 4)} = Q ${number(parent.q, 4)} + ${alpha} · T ${number(parent.t, 4)}.`;
}

/** The paths through a node. */
function paths(data, node) {
  const through = (data.paths ?? []).filter((path) => path.node_ids.includes(node.node_id));
  const selected = through.filter((path) => path.selected).map((path) => `#${path.rank}`);
  const own = through.find((path) => path.leaf_id === node.node_id);
  const said = [];
  if (selected.length) said.push(`On the selected ${selected.length > 1 ? "paths" : "path"} ${selected.join(", ")}.`);
  if (own?.candidate) said.push(`The path that ends here is number ${own.rank} of the tree: PathScore ${number(own.PathScore, 4)}.`);
  if (own && !own.candidate) said.push(`The path that ends here is no candidate: ${own.excluded_reason.replace("_", " ")}.`);
  return said.length ? el("p", {}, said.join(" ")) : null;
}

/** The node's own ranks in the rounds in which it was a candidate (method T10–T12). */
function standing(data, node) {
  const rounds = data.rounds.filter((row) => row.node_id === node.node_id);
  if (!rounds.length) return null;
  return table("As a candidate for further forks",
    ["Round", "Place", "Score rank", "Best rank", "Process", "Q", "T", "Select", "Forks given"],
    rounds.map((row) => [row.round, `${row.place} of ${row.of}`,
      ...["score_rank", "best_rank", "process", "q", "t", "select"].map((name) => number(row[name], 3)), row.expansions]));
}

function numbersOfRoot(data, node) {
  return facts([["Score", number(node.score)], ["Children", count(node.valid_children)], ...value(data, node)]);
}

function numbers(data, edge, node) {
  const parent = data.node.get(edge.parent_id);
  const gain = typeof edge.best_score === "number" && typeof parent.score === "number" ? edge.best_score - parent.score : null;
  return facts([
    ["Score", [number(edge.best_score), edge.improved ? better() : null]],
    ["Against its parent", signed(gain, 4)],
    node ? ["Best on the path", number(node.path_best_score)] : null,
    node ? ["Soft score", number(edge.soft, 3)] : null,
    node ? ["Outcome", number(edge.outcome, 3)] : null,
    node ? ["Cleanliness", number(edge.cleanliness, 3)] : null,
    node ? ["Knowledge", number(edge.knowledge, 3)] : null,
    ["Turns that regressed", `${number(100 * edge.regressed_rate, 3)} %`],
    edge.credit ? ["Reward", signed(edge.credit.reward, 4)] : null,
    edge.credit ? ["Advantage", edge.credit.advantage === null ? "unassigned" : signed(edge.credit.advantage, 4)] : null,
    ...(node ? value(data, node) : []),
    ["Tool calls", `${count(edge.tool_calls)}, ${count(edge.failed_tool_calls)} failed`],
    ["Context tokens", count(edge.max_token_total)],
    ["Time", `${number(edge.seconds, 3)} s`],
  ]);
}

/** The sign of an edge that improved on its parent, in words for those who hear the page. */
function better() {
  return [el("span", { class: "good", "aria-hidden": "true" }, " ▲"), el("span", { class: "unseen" }, " improved")];
}

function value(data, node) {
  const own = data.value.get(node.node_id);
  return own ? [["Refined value", number(own.refined, 3)], own.target === null ? null : ["Critic target", number(own.target, 3)]] : [];
}

function turnPart(data, edge, turn) {
  const messages = edge.messages.filter((message) => message.turn === turn.turn);
  const transcript = el("details", { class: "transcript", open: transcriptsOpen },
    el("summary", {}, `Transcript of turn ${turn.turn}: ${several(messages.length, "message")}`));
  const fill = () => {
    if (transcript.open && transcript.childElementCount === 1) transcript.append(transcriptOf(data, messages));
  };
  transcript.addEventListener("toggle", () => { transcriptsOpen = transcript.open; fill(); });
  fill();
  const feedback = data.texts[turn.feedback];
  return el("section", { class: "turn" },
    el("h5", {}, `Turn ${turn.turn}`),
    el("p", { class: "verdict" },
      el("strong", {}, turn.score === null ? "No score" : `Score ${number(turn.score)}`),
      turn.status ? `, ${turn.status}` : null,
      ` · ${several(turn.step_turns, "model call")} · ${several(turn.tool_calls, "tool call")} · ${number(turn.seconds, 3)} s`,
      ` · shared knowledge ${knowledge(turn)}`,
      turn.commit_hash ? [" · commit ", el("code", {}, turn.commit_hash.slice(0, 12))] : null),
    feedback ? el("div", { class: "feedback" }, pooled(feedback, `turns.parquet, edge ${edge.edge_id}`)) : null,
    turnDiff(data, edge, turn),
    messages.length ? transcript : el("p", { class: "empty" }, "The Teacher told no messages of this turn."));
}

function knowledge(turn) {
  const done = [turn.knowledge_read ? "read" : null, turn.knowledge_write ? "written" : null].filter(Boolean);
  return done.length ? done.join(" and ") : "left alone";
}

/** What the edge as a whole changed in its parent's code. Null where only its turns' own diffs tell. */
function edgeDiff(data, edge) {
  if (edge.code_diff === null) return null;
  const text = data.texts[edge.code_diff];
  return [
    el("h5", {}, `Code diff against ${named(edge.parent_id)}`),
    text ? diffBlock(text, turnsFile(data, edge)) : el("p", { class: "empty" }, "The code is the same."),
  ];
}

const turnsFile = (data, edge) => `${data.folder}/turns.parquet, edge ${edge.edge_id}`;
const diffBlock = (text, where) => el("div", { class: "diff" }, pooled(text, where, diffLines));

/** The diff of a turn's commit; folded away where the whole edge's stands above it. */
function turnDiff(data, edge, turn) {
  const text = turn.code_diff === null ? null : data.texts[turn.code_diff];
  if (text === "") return el("p", { class: "empty" }, "The commit changes no code.");
  if (!text) {
    const said = turn.commit_hash ? "No code diff was recorded." : "No commit was graded, so there is no code diff.";
    return el("p", { class: "empty" }, said);
  }
  const before = edge.turns.findLast((other) => other.turn < turn.turn && other.commit_hash);
  const title = `Code diff against ${before ? `turn ${before.turn}` : named(edge.parent_id)}`;
  const block = () => diffBlock(text, turnsFile(data, edge));
  if (edge.code_diff === null) return [el("p", { class: "caption" }, title), block()];
  const fold = el("details", {}, el("summary", {}, title));
  fold.addEventListener("toggle", () => { if (fold.open && fold.childElementCount === 1) fold.append(block()); });
  return fold;
}

/** Added and removed lines as <ins> and <del>, so that they are told from the others without colour as well.
    What git says before a file's first hunk is left out where its name says the same. ``isTail``: the text begins
    somewhere in a hunk, with what is left of a line. */
function diffLines(text, isTail = false) {
  const shown = [];
  let inHunk = isTail;
  for (const [place, line] of text.replace(/\n$/, "").split("\n").entries()) {
    const file = line.match(/^diff --git (?:a\/.* b\/)?(.*)$/);
    if (file) inHunk = false;
    if (line.startsWith("@@")) inHunk = true;
    if (file) shown.push(el("span", { class: "file" }, `${file[1]}\n`));
    else if (isTail && place === 0) shown.push(el("span", { class: "same" }, `${line}\n`));
    else if (inHunk) shown.push(diffLine(line));
    else if (!/^(index |--- |\+\+\+ )/.test(line)) shown.push(el("span", { class: line[0] === "\\" ? "note" : "head" }, `${line}\n`));
  }
  return shown;
}

function diffLine(line) {
  const kind = { "+": "ins", "-": "del", "@": "hunk", "\\": "note" }[line[0]] ?? "same";
  return el(kind === "ins" || kind === "del" ? kind : "span", { class: kind }, `${line}\n`);
}

function transcriptOf(data, messages) {
  return el("ol", { class: "messages" }, messages.map((message) => {
    const where = `${data.folder}/messages.parquet, message ${message.message_id}`;
    const tokens = message.output_tokens === null ? null : ` ${count(message.output_tokens)} tokens sampled`;
    return el("li", { class: `message ${message.role}` },
      el("p", { class: "role" }, ROLES[message.role] ?? message.role, el("span", { class: "quiet" }, tokens)),
      message.parts.map((part) => partOf(data.texts[part.text], part, where)));
  }));
}

function partOf(text, part, where) {
  const block = (content) => el("div", { class: `part ${part.type}${part.is_error ? " error" : ""}` }, content);
  if (part.type === "text") return block(folded(text, where, "Text"));
  if (part.type === "reasoning") return block([el("p", { class: "label" }, "Reasoning"), folded(text, where, "Reasoning")]);
  const label = part.type === "tool_call" ? `Calls ${part.name}` : `${part.is_error ? "Error" : "Result"} of ${part.name ?? "a tool"}`;
  return block([el("p", { class: "label" }, label), folded(text, where, "Text")]);
}

/** A long text is folded away behind its first line and its size. */
function folded(text, where, what) {
  const whole = typeof text === "string" ? text : text[0] + text[2];
  if (!whole.length) return el("p", { class: "empty" }, "empty");
  const lines = whole.split("\n").length;
  if (typeof text === "string" && lines <= LONG.lines && whole.length <= LONG.characters) return pooled(text, where);
  const size = whole.length + (typeof text === "string" ? 0 : text[1]);
  const first = whole.trimStart().split("\n", 1)[0].slice(0, 90);
  const rest = el("span", { class: "quiet" }, ` … ${what} of ${count(size)} characters`);
  const fold = el("details", {}, el("summary", {}, el("span", { class: "first" }, first), rest));
  fold.addEventListener("toggle", () => { if (fold.open && fold.childElementCount === 1) fold.append(...[pooled(text, where)].flat()); });
  return fold;
}
