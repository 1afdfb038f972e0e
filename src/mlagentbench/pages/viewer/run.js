"use strict";
// Moving through the steps: keys, links, the mark in the timeline.
const viewer = (() => {
  const steps = document.getElementById("steps");
  const help = document.getElementById("help");
  const said = document.getElementById("said");
  const all = () => steps.children;
  let current = null;
  let moving = false; // scrolled by us: the mark stays where it was put

  const mark = (step) => {
    if (step === current) return;
    current?.classList.remove("current");
    document.querySelector("#timeline a.current")?.classList.remove("current");
    current = step;
    if (!step) return;
    step.classList.add("current");
    remark();
  };
  // Also after the timeline was replaced.
  const remark = () => {
    if (current) document.querySelector(`#timeline a[href="#${current.id}"]`)?.classList.add("current");
  };
  const go = (step) => {
    if (!step) return;
    moving = true;
    mark(step);
    history.replaceState(null, "", `#${step.id}`);
    step.scrollIntoView({ block: "start" });
    step.focus({ preventScroll: true });
  };
  const place = () => (current ? [...all()].indexOf(current) : -1);
  const by = (count) => go(all()[Math.min(Math.max(place() + count, 0), all().length - 1)]);
  const notable = (step) => step.classList.contains("failed") || step.querySelector(":scope > .finding");
  const nextNotable = (way) => {
    for (let i = place() + way; i >= 0 && i < all().length; i += way) if (notable(all()[i])) return go(all()[i]);
    say(way > 0 ? "nothing further down failed or was found" : "nothing further up failed or was found");
  };
  const fold = () => {
    const folded = [...(current?.querySelectorAll("details") ?? [])];
    const open = folded.some((each) => !each.open);
    for (const each of folded) each.open = open;
  };
  let hush = 0;
  const say = (words) => {
    said.textContent = words;
    clearTimeout(hush);
    hush = setTimeout(() => { said.textContent = ""; }, 2000);
  };
  const copy = async (step) => {
    if (!step) return;
    const link = new URL(`#${step.id}`, location.href).href;
    try { await navigator.clipboard.writeText(link); say(`link to step ${step.id.slice(5)} copied`); } catch { say(link); }
  };
  const fromAddress = () => {
    const step = /^#step-\d+$/.test(location.hash) && document.getElementById(location.hash.slice(1));
    if (step) go(step);
  };

  const keys = {
    j: () => by(1), ArrowRight: () => by(1), k: () => by(-1), ArrowLeft: () => by(-1),
    g: () => go(all()[0]), G: () => go(all()[all().length - 1]),
    f: () => nextNotable(1), F: () => nextNotable(-1),
    o: fold, y: () => copy(current), "?": () => help.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (event.target.matches("input, textarea")) return;
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#step-"]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const step = document.getElementById(link.getAttribute("href").slice(1));
    go(step);
    if (link.classList.contains("number")) copy(step);
  });
  document.getElementById("keys").addEventListener("click", () => help.showModal());
  addEventListener("hashchange", fromAddress);
  for (const sign of ["wheel", "touchmove", "pointerdown"]) addEventListener(sign, () => { moving = false; }, { passive: true });

  // While the reader scrolls, the step at the top is the current one.
  let waiting = false;
  addEventListener("scroll", () => {
    if (waiting || moving) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const found = document.elementFromPoint(innerWidth / 2, 140)?.closest("#steps > .step");
      if (found) mark(found);
    });
  }, { passive: true });

  fromAddress();
  return { go, mark, remark, say, all, keys };
})();
