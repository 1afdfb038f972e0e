"use strict";
// Tables sort by a click on a heading; the list of runs filters by words.
(() => {
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell === undefined ? "" : cell.dataset.value ?? cell.textContent.trim();
  };
  const number = (text) => (text === "" || text === "–" || text === "-" ? NaN : Number(text));
  const compare = (one, other) => {
    const [a, b] = [number(one), number(other)];
    if (Number.isNaN(a) && Number.isNaN(b)) return one.localeCompare(other, undefined, { numeric: true });
    return Number.isNaN(a) ? -Infinity : Number.isNaN(b) ? Infinity : a - b;
  };
  const sort = (table, head) => {
    const was = head.getAttribute("aria-sort");
    const now = was ? (was === "ascending" ? "descending" : "ascending") : head.classList.contains("num") ? "descending" : "ascending";
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", now);
    const sign = now === "descending" ? -1 : 1;
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [value(row, head.cellIndex), row]);
    body.append(...rows.sort((one, other) => sign * compare(one[0], other[0])).map((pair) => pair[1]));
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const head of table.tHead.rows[table.tHead.rows.length - 1].cells) {
      head.classList.add("sorts");
      head.tabIndex = 0;
      head.addEventListener("click", () => sort(table, head));
      head.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(table, head); } });
    }
  }
  const input = document.getElementById("filter");
  const rows = [...document.getElementById("list").tBodies[0].rows].map((row) => [row, row.textContent.toLowerCase()]);
  const filter = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const [row, text] of rows) {
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    document.getElementById("shown").textContent = shown === rows.length ? `${rows.length} runs` : `${shown} of ${rows.length} runs`;
  };
  input.addEventListener("input", filter);
  for (const link of document.querySelectorAll("[data-filter]")) {
    link.addEventListener("click", () => { input.value = link.dataset.filter; filter(); });
  }
})();
