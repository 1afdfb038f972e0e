"use strict";
// Navigation between steps: keyboard shortcuts, links, and the current step in the timeline.
const viewer = (() => {
  const TOP_OFFSET_PX = 140; // below the sticky timeline
  const STATUS_DURATION_MS = 2000;
  const container = document.getElementById("steps");
  const help = document.getElementById("help");
  const status = document.getElementById("status");
  const steps = () => container.children;
  let current = null;
  let scrolledByScript = false; // then scrolling does not change the current step

  const setCurrent = (step) => {
    if (step === current) return;
    current?.classList.remove("current");
    document.querySelector("#timeline a.current")?.classList.remove("current");
    current = step;
    if (!step) return;
    step.classList.add("current");
    markTimeline();
  };
  // Also called after the timeline was replaced.
  const markTimeline = () => {
    if (current) document.querySelector(`#timeline a[href="#${current.id}"]`)?.classList.add("current");
  };
  const goTo = (step) => {
    if (!step) return;
    scrolledByScript = true;
    setCurrent(step);
    history.replaceState(null, "", `#${step.id}`);
    step.scrollIntoView({ block: "start" });
    step.focus({ preventScroll: true });
  };
  const index = () => (current ? [...steps()].indexOf(current) : -1);
  const move = (count) => goTo(steps()[Math.min(Math.max(index() + count, 0), steps().length - 1)]);
  const isNotable = (step) => step.classList.contains("failed") || step.querySelector(":scope > .finding");
  const goToNotable = (direction) => {
    for (let i = index() + direction; i >= 0 && i < steps().length; i += direction) {
      if (isNotable(steps()[i])) { goTo(steps()[i]); return; }
    }
    showStatus(`No ${direction > 0 ? "later" : "earlier"} step failed or has a finding.`);
  };
  const toggleDetails = () => {
    const details = [...(current?.querySelectorAll("details") ?? [])];
    const open = details.some((element) => !element.open);
    for (const element of details) element.open = open;
  };
  let statusTimer = 0;
  const showStatus = (text) => {
    status.textContent = text;
    clearTimeout(statusTimer);
    statusTimer = setTimeout(() => { status.textContent = ""; }, STATUS_DURATION_MS);
  };
  const copyLink = async (step) => {
    if (!step) return;
    const link = new URL(`#${step.id}`, location.href).href;
    try {
      await navigator.clipboard.writeText(link);
      showStatus(`Link to step ${step.id.slice(5)} copied.`);
    } catch { showStatus(link); }
  };
  const goToHash = () => {
    const step = /^#step-\d+$/.test(location.hash) && document.getElementById(location.hash.slice(1));
    if (step) goTo(step);
  };

  const keys = {
    j: () => move(1), ArrowRight: () => move(1), k: () => move(-1), ArrowLeft: () => move(-1),
    g: () => goTo(steps()[0]), G: () => goTo(steps()[steps().length - 1]),
    f: () => goToNotable(1), F: () => goToNotable(-1),
    o: toggleDetails, y: () => copyLink(current), "?": () => help.showModal(),
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
    goTo(step);
    if (link.classList.contains("number")) copyLink(step);
  });
  document.getElementById("keys").addEventListener("click", () => help.showModal());
  addEventListener("hashchange", goToHash);
  for (const name of ["wheel", "touchmove", "pointerdown"]) {
    addEventListener(name, () => { scrolledByScript = false; }, { passive: true });
  }

  // While the reader scrolls, the step at the top is the current one.
  let frameRequested = false;
  addEventListener("scroll", () => {
    if (frameRequested || scrolledByScript) return;
    frameRequested = true;
    requestAnimationFrame(() => {
      frameRequested = false;
      const step = document.elementFromPoint(innerWidth / 2, TOP_OFFSET_PX)?.closest("#steps > .step");
      if (step) setCurrent(step);
    });
  }, { passive: true });

  goToHash();
  return { goTo, markTimeline, showStatus, steps, keys, TOP_OFFSET_PX };
})();
