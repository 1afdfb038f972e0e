"use strict";
// Follows a run: what is new comes as the same page with only the new steps, and the reader's place stays.
(() => {
  const EVERY = 1000;
  const SELDOM = 5000; // a run that ended may be resumed
  const news = document.getElementById("news");
  const told = () => document.getElementById("head").dataset;
  let unseen = null;

  const replace = (id, fresh) => {
    const old = document.getElementById(id);
    for (const folded of old.querySelectorAll("details[id][open]")) fresh.querySelector(`#${folded.id}`).open = true;
    old.replaceWith(fresh);
  };
  const merge = (text) => {
    const page = new DOMParser().parseFromString(text, "text/html"); // runs no script
    const known = viewer.all().length;
    if (Number(page.getElementById("steps").dataset.count) < known) return location.reload(); // it was rewound
    const fresh = [...page.getElementById("steps").children].filter((step) => !document.getElementById(step.id));
    for (const id of ["head", "timeline", "beyond", "legend"]) replace(id, page.getElementById(id));
    document.title = page.title;
    document.getElementById("steps").append(...fresh);
    viewer.remark();
    if (!fresh.length) return undefined;
    unseen ??= fresh[0];
    const count = viewer.all().length - [...viewer.all()].indexOf(unseen);
    news.textContent = `${count} new step${count === 1 ? "" : "s"} ↓`;
    news.hidden = false;
    return undefined;
  };
  const look = async () => {
    try {
      const reply = await fetch(`${location.pathname}?after=${viewer.all().length}&stamp=${told().stamp}`);
      if (reply.status === 200) merge(await reply.text());
    } catch { viewer.say("the server does not answer"); }
    setTimeout(look, told().state === "going" ? EVERY : SELDOM);
  };
  const seen = () => { unseen = null; news.hidden = true; };
  news.addEventListener("click", () => { const step = unseen; seen(); viewer.go(step); });
  addEventListener("scroll", () => { if (unseen && unseen.getBoundingClientRect().top < innerHeight) seen(); }, { passive: true });
  setTimeout(look, EVERY);
})();
