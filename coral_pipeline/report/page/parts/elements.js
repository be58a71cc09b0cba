/* Making elements. Text only ever becomes text: nothing here, or anywhere in these scripts, reads it as HTML. */

/** An element with attributes (class, href, …) and children: elements, texts, or lists of them; null is left out. */
function el(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === true) element.setAttribute(key, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

function number(value, digits = 6) {
  if (value === null || value === undefined) return "–";
  return typeof value === "number" ? String(Number(value.toPrecision(digits))).replace(/^-/, "−") : String(value);
}

function signed(value, digits = 3) {
  return (value > 0 ? "+" : "") + number(value, digits);
}

function count(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en");
}

/** "1 message", "2 messages". */
function several(value, name) {
  return `${count(value)} ${name}${value === 1 ? "" : "s"}`;
}

function ordinal(value) {
  const ending = { one: "st", two: "nd", few: "rd", other: "th" };
  return value + ending[new Intl.PluralRules("en", { type: "ordinal" }).select(value)];
}

/** A list of named values. */
function facts(pairs) {
  const fact = ([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
  return el("dl", { class: "facts small" }, pairs.filter(Boolean).map(fact));
}

/** A table that scrolls by itself where it is too wide. ``rows`` of cells; the first of each heads its row. */
function table(label, heads, rows) {
  const head = el("tr", {}, heads.map((text) => el("th", { scope: "col" }, text)));
  const line = (cells) => el("tr", {}, cells.map((cell, i) => (i ? el("td", {}, cell) : el("th", { scope: "row" }, cell))));
  return el("div", { class: "wide", tabindex: "0", role: "group", "aria-label": label },
    el("table", {}, el("caption", {}, label), el("thead", {}, head), el("tbody", {}, rows.map(line))));
}

/** A text of the pool in a block, its missing middle named. ``where`` says in which file all of it is;
    ``render`` makes elements of a part, and is told whether it is what follows the missing middle. */
function pooled(text, where, render = (part) => part) {
  if (typeof text === "string") return el("pre", {}, render(text));
  const [head, missing, tail] = text;
  return [
    el("pre", {}, render(head)),
    el("p", { class: "cut" }, `${count(missing)} characters are left out here; all of it is in ${where}.`),
    el("pre", {}, render(tail, true)),
  ];
}
