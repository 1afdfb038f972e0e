"use strict";
// Follows a run: the server sends the same page with only the new steps, and the reader's position is kept.
(() => {
  const RUNNING_INTERVAL_MS = 1000;
  const ENDED_INTERVAL_MS = 5000; // an ended run may be resumed
  const button = document.getElementById("new-steps");
  const state = () => document.getElementById("head").dataset;
  let firstUnseen = null;

  const replace = (id, fresh) => {
    const old = document.getElementById(id);
    for (const details of old.querySelectorAll("details[id][open]")) fresh.querySelector(`#${details.id}`).open = true;
    old.replaceWith(fresh);
  };
  const merge = (text) => {
    const page = new DOMParser().parseFromString(text, "text/html"); // runs no scripts
    const known = viewer.steps().length;
    // The run was rewound.
    if (Number(page.getElementById("steps").dataset.count) < known) return location.reload();
    const fresh = [...page.getElementById("steps").children].filter((step) => !document.getElementById(step.id));
    for (const id of ["head", "timeline", "pending-calls", "legend"]) replace(id, page.getElementById(id));
    document.title = page.title;
    document.getElementById("steps").append(...fresh);
    viewer.markTimeline();
    if (!fresh.length) return undefined;
    firstUnseen ??= fresh[0];
    const count = viewer.steps().length - [...viewer.steps()].indexOf(firstUnseen);
    button.textContent = `${count} new step${count === 1 ? "" : "s"} ↓`;
    button.hidden = false;
    return undefined;
  };
  const poll = async () => {
    try {
      const reply = await fetch(`${location.pathname}?after=${viewer.steps().length}&stamp=${state().stamp}`);
      if (reply.status === 200) merge(await reply.text());
    } catch { viewer.showStatus("The server does not respond."); }
    setTimeout(poll, state().state === "running" ? RUNNING_INTERVAL_MS : ENDED_INTERVAL_MS);
  };
  const clearUnseen = () => { firstUnseen = null; button.hidden = true; };
  button.addEventListener("click", () => { const step = firstUnseen; clearUnseen(); viewer.goTo(step); });
  addEventListener("scroll", () => {
    if (firstUnseen && firstUnseen.getBoundingClientRect().top < innerHeight) clearUnseen();
  }, { passive: true });
  setTimeout(poll, RUNNING_INTERVAL_MS);
})();
