// Keeps a page fresh without loading it anew: its content is asked for every few seconds, and sent only if it is another. Not
// while nobody sees it, somebody is in the middle of something on it, or it was paused. Without this script there is "Refresh".
(() => {
  "use strict";
  const EVERY_MS = 5000;
  const main = document.getElementById("main");
  const refresh = document.getElementById("refresh");
  if (!main || !refresh) return;
  let tag = null;
  let isPaused = false;

  const button = document.createElement("button");
  button.type = "button";
  const show = () => {
    button.textContent = isPaused ? "Refresh by itself" : "Stop refreshing";
  };
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    show();
  });
  show();
  refresh.after(" ", button);

  // Somebody has filled a field in, wherever he is now.
  const isFilled = (it) =>
    it.options
      ? it.selectedIndex !== Math.max(0, [...it.options].findIndex((option) => option.defaultSelected))
      : it.value !== it.defaultValue;

  // Whoever reads, types or selects is not disturbed.
  const isBusy = () => {
    const active = document.activeElement;
    const isInForm = active && active.closest("form");
    const isInside = active && active !== main && main.contains(active);
    const isBegun = [...main.querySelectorAll("input, select")].some(isFilled);
    return document.hidden || isPaused || isInForm || isInside || isBegun || !document.getSelection().isCollapsed;
  };

  const replace = (html) => {
    const fresh = new DOMParser().parseFromString(html, "text/html").getElementById("main");
    if (!fresh) return;
    for (const open of main.querySelectorAll("details[open]")) {
      const again = fresh.querySelector("#" + CSS.escape(open.id));
      if (again) again.open = true;
    }
    const places = [...main.querySelectorAll(".wide, pre")].map((it) => [it.scrollLeft, it.scrollTop]);
    main.replaceChildren(...fresh.childNodes);
    [...main.querySelectorAll(".wide, pre")].forEach((it, at) => {
      if (places[at]) [it.scrollLeft, it.scrollTop] = places[at];
    });
  };

  const look = async () => {
    if (isBusy()) return;
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(location.href, { headers, cache: "no-store" });
      if (answer.status !== 200 || isBusy()) return;
      const html = await answer.text();
      tag = answer.headers.get("ETag");
      if (!isBusy()) replace(html);
    } catch {
      // The page may be back at the next look.
    }
  };
  const again = () => setTimeout(() => look().finally(again), EVERY_MS);
  again();
})();
