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
  // A listing is arranged without loading the page anew; the address says how, so that it can be kept and sent on.
  const arrange = async (address) => {
    const answer = await fetch(address, { cache: "no-store" });
    const html = answer.status === 200 ? await answer.text() : "";
    const fresh = new DOMParser().parseFromString(html, "text/html").getElementById("listing");
    const now = document.getElementById("listing");
    if (!fresh || !now) return;
    now.replaceWith(fresh);
    history.replaceState(null, "", address);
    tag = null;
    const asked = new URL(location.href).searchParams;
    for (const field of document.getElementById("filter").elements) {
      if (field.type === "checkbox") field.checked = field.defaultChecked = asked.has(field.name);
      else if (field.options) [...field.options].forEach((it) => (it.defaultSelected = it.selected = it.value === (asked.get(field.name) ?? field.value)));
      else if (field.name) field.defaultValue = field.value;
    }
  };
  let later = 0;
  main.addEventListener("input", (event) => {
    const form = event.target.closest("#filter");
    if (!form) return;
    clearTimeout(later);
    later = setTimeout(() => {
      const asked = new URLSearchParams(new FormData(form));
      [...asked].forEach(([name, value]) => value || asked.delete(name));
      arrange(form.getAttribute("action") + "?" + asked).catch(() => form.submit());
    }, 300);
  });
  main.addEventListener("click", (event) => {
    const link = event.target.closest("#listing thead a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    arrange(link.getAttribute("href")).catch(() => (location.href = link.href));
  });

  const again = () => setTimeout(() => look().finally(again), EVERY_MS);
  again();
})();
