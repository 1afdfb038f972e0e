"use strict";
// The list of runs stays as the runs are.
(() => {
  const EVERY = 2000;
  const look = async () => {
    try {
      const reply = await fetch(location.pathname);
      const page = new DOMParser().parseFromString(await reply.text(), "text/html"); // runs no script
      const [old, fresh] = [document, page].map((each) => each.getElementById("runs"));
      if (fresh && fresh.innerHTML !== old.innerHTML) old.replaceWith(fresh); // else a selection would be lost
      if (fresh) document.title = page.title;
    } catch { /* the server ended; what is shown stays */ }
    setTimeout(look, EVERY);
  };
  setTimeout(look, EVERY);
})();
