"use strict";
{ // Tables that sort and filter, and tab stops for what scrolls sideways. Without this script the page is whole.
  const make = (name, more) => Object.assign(document.createElement(name), more);
  const text = (row, at) => row.cells[at]?.textContent.trim() ?? "";
  const number = (row, at) => parseFloat(text(row, at).replaceAll("−", "-").replace(/[,<\s]/g, ""));
  const byWords = (at, sign) => (one, two) => sign * text(one, at).localeCompare(text(two, at), "en", {numeric: true});
  const bySize = (at, sign) => (one, two) => {
    const [a, b] = [number(one, at), number(two, at)];
    return isNaN(a) - isNaN(b) || sign * (a - b); // what has no number comes last
  };
  const groups = body => { // rows, below the heading of their group where there are groups
    const found = [{rows: []}];
    for (const row of body.rows) {
      if (row.className === "condition") found.push({head: row, rows: []});
      else found.at(-1).rows.push(row);
    }
    return found;
  };
  for (const table of document.querySelectorAll(".scroll > table:not(.fixed)")) {
    const parts = [...table.tBodies].flatMap(body => groups(body).map(part => ({body, ...part})));
    const heads = [...table.tHead.rows[0].cells];
    for (const [at, head] of heads.entries()) {
      const button = make("button", {type: "button", title: "Sort"});
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const next = {null: "ascending", ascending: "descending", descending: null}[head.getAttribute("aria-sort")];
        for (const one of heads) one.removeAttribute("aria-sort");
        if (next) head.setAttribute("aria-sort", next);
        const by = at === 0 || head.className === "text" ? byWords : bySize;
        const order = next && by(at, next === "ascending" ? 1 : -1);
        for (const {body, head, rows} of parts) body.append(...head ? [head] : [], ...order ? rows.toSorted(order) : rows);
      });
    }
    const rows = parts.flatMap(part => part.rows);
    if (rows.length <= 8) continue;
    const search = make("input", {type: "search", placeholder: "Filter rows", ariaLabel: "Filter rows by words"});
    const shown = make("output"), bar = make("p", {className: "filter"});
    search.addEventListener("input", () => {
      const words = search.value.toLowerCase().split(/\s+/);
      for (const row of rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
      for (const {head, rows} of parts) if (head) head.hidden = rows.every(row => row.hidden);
      shown.textContent = `${rows.filter(row => !row.hidden).length} of ${rows.length}`;
    });
    bar.append(search, " ", shown);
    table.parentElement.before(bar);
  }
  const stops = () => { // what can be reached by keyboard, so that it can be scrolled
    for (const box of document.querySelectorAll(".scroll, pre")) {
      const wide = box.scrollWidth > box.clientWidth + 1;
      for (const [name, value] of [["tabindex", 0], ["role", "group"], ["aria-label", "Scrolls sideways"]])
        wide ? box.setAttribute(name, value) : box.removeAttribute(name);
    }
  };
  addEventListener("resize", stops);
  addEventListener("toggle", stops, true); // of what is unfolded
  stops();
}
