"use strict";
// Search in all steps. Matches are highlighted by ranges, so that the document itself does not change.
(() => {
  const MAX_MATCHES = 5000;
  const TYPING_DELAY_MS = 120;
  const input = document.querySelector("#search input");
  const output = document.querySelector("#search output");
  let matches = [];
  let current = -1;
  input.hidden = false;

  const highlight = (name, ranges) => {
    if (!globalThis.Highlight) return;
    if (ranges.length) CSS.highlights.set(name, new Highlight(...ranges));
    else CSS.highlights.delete(name);
  };
  const findMatches = (query) => {
    const found = [];
    const texts = document.createTreeWalker(document.getElementById("steps"), NodeFilter.SHOW_TEXT);
    while (texts.nextNode() && found.length < MAX_MATCHES) {
      const node = texts.currentNode;
      const text = node.data.toLowerCase();
      let start = text.indexOf(query);
      while (start >= 0 && found.length < MAX_MATCHES) {
        if (start + query.length > node.length) break; // some characters are longer in lower case
        const range = document.createRange();
        range.setStart(node, start);
        range.setEnd(node, start + query.length);
        found.push(range);
        start = text.indexOf(query, start + query.length);
      }
    }
    return found;
  };
  const showCount = () => {
    if (!input.value) output.textContent = "";
    else if (!matches.length) output.textContent = "no matches";
    else output.textContent = `${current + 1} of ${matches.length}${matches.length === MAX_MATCHES ? "+" : ""}`;
  };
  const reveal = (range) => {
    const parent = range.startContainer.parentElement;
    for (let details = parent.closest("details"); details; details = details.parentElement.closest("details")) {
      details.open = true;
    }
    viewer.goTo(parent.closest(".step"));
    const top = () => range.getBoundingClientRect().top;
    const pre = parent.closest("pre");
    if (pre) pre.scrollTop += top() - pre.getBoundingClientRect().top - pre.clientHeight / 2;
    if (top() < viewer.TOP_OFFSET_PX || top() > innerHeight - 60) scrollBy(0, top() - innerHeight / 2);
  };
  const goToMatch = (index) => {
    if (!matches.length) return;
    current = (index + matches.length) % matches.length;
    highlight("current-match", [matches[current]]);
    showCount();
    reveal(matches[current]);
  };
  const search = () => {
    const query = input.value.toLowerCase();
    matches = query ? findMatches(query) : [];
    current = -1;
    highlight("match", matches);
    highlight("current-match", []);
    showCount();
  };
  const clear = () => { input.value = ""; search(); input.blur(); };

  let timer = 0;
  input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(search, TYPING_DELAY_MS); });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") clear();
    if (event.key !== "Enter") return;
    event.preventDefault();
    clearTimeout(timer);
    if (current < 0) search(); // the last characters may not have been searched yet
    goToMatch(current + (event.shiftKey ? -1 : 1));
    input.focus({ preventScroll: true });
  });
  Object.assign(viewer.keys, {
    "/": () => { input.focus(); input.select(); },
    n: () => goToMatch(current + 1), N: () => goToMatch(current - 1), Escape: clear,
  });
})();
