"use strict";
// Search in all steps: matches are marked by ranges, so that nothing in the page changes.
(() => {
  const input = document.querySelector("#search input");
  const output = document.querySelector("#search output");
  const MOST = 5000;
  let ranges = [];
  let here = -1;
  input.hidden = false;

  const show = (name, found) => {
    if (!globalThis.Highlight) return;
    if (found.length) CSS.highlights.set(name, new Highlight(...found));
    else CSS.highlights.delete(name);
  };
  const find = (wanted) => {
    const found = [];
    const texts = document.createTreeWalker(document.getElementById("steps"), NodeFilter.SHOW_TEXT);
    while (texts.nextNode() && found.length < MOST) {
      const text = texts.currentNode.data.toLowerCase();
      for (let at = text.indexOf(wanted); at >= 0 && found.length < MOST; at = text.indexOf(wanted, at + wanted.length)) {
        if (at + wanted.length > texts.currentNode.length) break; // a letter whose small form is longer
        const range = document.createRange();
        range.setStart(texts.currentNode, at);
        range.setEnd(texts.currentNode, at + wanted.length);
        found.push(range);
      }
    }
    return found;
  };
  const count = () => {
    if (!input.value) output.textContent = "";
    else if (!ranges.length) output.textContent = "no match";
    else output.textContent = `${here + 1} of ${ranges.length}${ranges.length === MOST ? "+" : ""}`;
  };
  const reveal = (range) => {
    const within = range.startContainer.parentElement;
    for (let each = within.closest("details"); each; each = each.parentElement.closest("details")) each.open = true;
    viewer.go(within.closest(".step"));
    const box = within.closest("pre");
    if (box) box.scrollTop += range.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 2;
    const top = range.getBoundingClientRect().top;
    if (top < 140 || top > innerHeight - 60) scrollBy(0, top - innerHeight / 2);
  };
  const to = (next) => {
    if (!ranges.length) return;
    here = (next + ranges.length) % ranges.length;
    show("here", [ranges[here]]);
    count();
    reveal(ranges[here]);
  };
  const search = () => {
    const wanted = input.value.toLowerCase();
    ranges = wanted ? find(wanted) : [];
    here = -1;
    show("match", ranges);
    show("here", []);
    count();
  };
  const end = () => { input.value = ""; search(); input.blur(); };

  let soon = 0;
  input.addEventListener("input", () => { clearTimeout(soon); soon = setTimeout(search, 120); });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") end();
    if (event.key !== "Enter") return;
    event.preventDefault();
    clearTimeout(soon);
    if (here < 0) search(); // what was typed a moment ago
    to(here + (event.shiftKey ? -1 : 1));
    input.focus({ preventScroll: true });
  });
  Object.assign(viewer.keys, {
    "/": () => { input.focus(); input.select(); },
    n: () => to(here + 1), N: () => to(here - 1), Escape: end,
  });
})();
