/* A table of a tree becomes a treegrid, after the ARIA Authoring Practices: up and down go from line to line, right
   opens a node or goes to its first child, left closes it or goes to its parent, Home and End to the first and last
   line. One line at a time can be reached by Tab; what has the focus is chosen, and Enter goes to what is told of it. */

/** ``choose(row)`` is called for the line that is chosen, ``enter()`` when the reader wants to go to its details;
    ``clicked()`` after a line was chosen with the pointer. */
function treegrid(body, choose, enter, clicked) {
  const rows = [...body.rows];
  const level = (row) => Number(row.dataset.level);
  body.parentElement.setAttribute("role", "treegrid");
  for (const row of rows) {
    row.setAttribute("role", "row");
    row.setAttribute("aria-level", row.dataset.level);
    row.setAttribute("aria-posinset", row.dataset.place);
    row.setAttribute("aria-setsize", row.dataset.of);
    row.setAttribute("aria-selected", "false");
    if ("inner" in row.dataset) row.setAttribute("aria-expanded", "true");
    for (const cell of row.cells) cell.setAttribute("role", cell.tagName === "TH" ? "rowheader" : "gridcell");
    row.querySelector("a").tabIndex = -1;
    row.tabIndex = -1;
  }
  rows[0].tabIndex = 0;

  const isOpen = (row) => row.getAttribute("aria-expanded") === "true";
  const parentOf = (row) => rows.slice(0, rows.indexOf(row)).reverse().find((other) => level(other) < level(row));
  const visible = () => rows.filter((row) => !row.hidden);

  function setOpen(row, open) {
    row.setAttribute("aria-expanded", String(open));
    let below = Infinity; // lines deeper than this belong to a closed node
    for (const other of rows) {
      if (level(other) <= below) below = Infinity;
      other.hidden = level(other) > below;
      if (!other.hidden && other.getAttribute("aria-expanded") === "false") below = Math.min(below, level(other));
    }
    if (document.activeElement.hidden) focus(row);
  }

  function mark(row) {
    for (const other of rows) {
      other.setAttribute("aria-selected", String(other === row));
      other.tabIndex = other === row ? 0 : -1;
    }
    for (let above = parentOf(row); above; above = parentOf(above)) if (!isOpen(above)) setOpen(above, true);
  }

  function focus(row) {
    mark(row);
    row.focus();
    choose(row);
  }

  const keys = {
    ArrowDown: (row) => visible()[visible().indexOf(row) + 1],
    ArrowUp: (row) => visible()[visible().indexOf(row) - 1],
    Home: () => rows[0],
    End: () => visible().at(-1),
    ArrowRight: (row) => (!("inner" in row.dataset) ? null : isOpen(row) ? rows[rows.indexOf(row) + 1] : setOpen(row, true)),
    ArrowLeft: (row) => ("inner" in row.dataset && isOpen(row) ? setOpen(row, false) : parentOf(row)),
    Enter: () => enter(),
  };
  body.addEventListener("keydown", (event) => {
    const row = event.target.closest("tr");
    if (!(event.key in keys) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const next = keys[event.key](row);
    if (next) focus(next);
  });
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    event.preventDefault();
    if (event.target.closest(".twisty") && "inner" in row.dataset) setOpen(row, !isOpen(row));
    else {
      focus(row);
      clicked();
    }
  });
  return { mark };
}
