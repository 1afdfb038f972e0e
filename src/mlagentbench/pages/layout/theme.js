"use strict";
// Light or dark theme: the system's preference, until the reader chooses one.
(() => {
  const root = document.documentElement;
  // A page opened from disk may not be allowed to use localStorage.
  const load = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const store = (theme) => { try { localStorage.setItem("theme", theme); } catch { /* not available */ } };
  const preferred = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const isDark = () => (root.dataset.theme ?? preferred()) === "dark";
  if (["light", "dark"].includes(load())) root.dataset.theme = load();
  root.classList.add("js");
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      store(root.dataset.theme);
    });
  });
})();
