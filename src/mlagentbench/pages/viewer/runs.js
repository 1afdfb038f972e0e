"use strict";
// Keeps the list of runs up to date.
(() => {
  const INTERVAL_MS = 2000;
  const poll = async () => {
    try {
      const reply = await fetch(location.pathname);
      const page = new DOMParser().parseFromString(await reply.text(), "text/html"); // runs no scripts
      const [old, fresh] = [document, page].map((tree) => tree.getElementById("runs"));
      // Replacing an unchanged list would lose the reader's selection.
      if (fresh && fresh.innerHTML !== old.innerHTML) old.replaceWith(fresh);
      if (fresh) document.title = page.title;
    } catch { /* the server has stopped; the list stays as it is */ }
    setTimeout(poll, INTERVAL_MS);
  };
  setTimeout(poll, INTERVAL_MS);
})();
