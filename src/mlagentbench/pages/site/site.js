"use strict";
// Tables are sorted by a click on a column header; the list of runs is filtered by words.
(() => {
  const cellValue = (row, column) => {
    const cell = row.cells[column];
    return cell === undefined ? "" : cell.dataset.value ?? cell.textContent.trim();
  };
  const toNumber = (text) => (text === "" || text === "–" || text === "-" ? NaN : Number(text));
  const compare = (first, second) => {
    const [a, b] = [toNumber(first), toNumber(second)];
    if (Number.isNaN(a) && Number.isNaN(b)) return first.localeCompare(second, undefined, { numeric: true });
    return Number.isNaN(a) ? -Infinity : Number.isNaN(b) ? Infinity : a - b;
  };
  const nextOrder = (header) => {
    const order = header.getAttribute("aria-sort");
    if (order) return order === "ascending" ? "descending" : "ascending";
    return header.classList.contains("num") ? "descending" : "ascending";
  };
  const sort = (table, header) => {
    const order = nextOrder(header);
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", order);
    const sign = order === "descending" ? -1 : 1;
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [cellValue(row, header.cellIndex), row]);
    rows.sort((first, second) => sign * compare(first[0], second[0]));
    body.append(...rows.map((pair) => pair[1]));
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const header of table.tHead.rows[table.tHead.rows.length - 1].cells) {
      header.classList.add("sortable-head");
      header.tabIndex = 0;
      header.addEventListener("click", () => sort(table, header));
      header.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        sort(table, header);
      });
    }
  }
  const input = document.getElementById("filter");
  if (!input) return;  // a page without the list of runs
  const counter = document.getElementById("shown-runs");
  const list = [...document.getElementById("run-list").tBodies[0].rows];
  const rows = list.map((row) => [row, row.textContent.toLowerCase()]);
  const filter = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const [row, text] of rows) {
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    counter.textContent = shown === rows.length ? `${rows.length} runs` : `${shown} of ${rows.length} runs`;
  };
  input.addEventListener("input", filter);
  for (const link of document.querySelectorAll("[data-filter]")) {
    link.addEventListener("click", () => { input.value = link.dataset.filter; filter(); });
  }
})();
