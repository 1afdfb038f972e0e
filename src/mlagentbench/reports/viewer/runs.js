"use strict";
// The list of runs stays as the runs are.
(() => {
  const EVERY = 2000;
  let tag = "";
  const look = async () => {
    try {
      const reply = await fetch(location.pathname, { headers: { "If-None-Match": tag } });
      if (reply.status === 200) {
        tag = reply.headers.get("ETag");
        const page = new DOMParser().parseFromString(await reply.text(), "text/html"); // runs no script
        document.getElementById("runs").replaceWith(page.getElementById("runs"));
        document.title = page.title;
      }
    } catch { /* the server ended; what is shown stays */ }
    setTimeout(look, EVERY);
  };
  setTimeout(look, EVERY);
})();
