"use strict";
(() => {
  const find = (where, what) => [...where.querySelectorAll(what)];
  const search = document.getElementById("search");
  const sections = find(document, ".section");
  document.querySelector(".tools").hidden = false;

  // ---- sort: by a click or a key on a title; ascending, descending, then as it was
  const key = (row, at, numeric) => {
    const cell = row.cells[at];
    const text = cell.dataset.v ?? cell.textContent.trim();
    if (!numeric) return text;
    const value = Number.parseFloat(text.replace(/,/g, ""));
    return Number.isNaN(value) ? null : value;
  };
  const compare = (a, b, down) => {
    if (a === null || a === "") return b === null || b === "" ? 0 : 1; // empty cells stay last either way
    if (b === null || b === "") return -1;
    const order = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
    return down ? -order : order;
  };
  const sort = (title) => {
    const table = title.closest("table");
    const numeric = title.classList.contains("n");
    const steps = numeric ? ["none", "descending", "ascending"] : ["none", "ascending", "descending"];
    const state = steps[(steps.indexOf(title.getAttribute("aria-sort")) + 1) % 3];
    for (const other of find(table, "thead th")) other.setAttribute("aria-sort", "none");
    title.setAttribute("aria-sort", state);
    const body = table.tBodies[0];
    table.original ??= [...body.rows];
    const keyed = table.original.map((row) => [key(row, title.cellIndex, numeric), row]);
    if (state !== "none") keyed.sort((a, b) => compare(a[0], b[0], state === "descending"));
    body.append(...keyed.map(([, row]) => row));
  };
  for (const title of find(document, "thead th")) {
    const handle = title.firstElementChild; // no button element: with one in it, a head is not repeated on each printed page
    handle.role = "button";
    handle.tabIndex = 0;
    title.setAttribute("aria-sort", "none");
    title.addEventListener("click", () => sort(title));
    handle.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sort(title);
    });
  }

  // ---- search: rows, blocks and sections that hold every word
  const UNITS = "tbody tr, pre.code, .note, .facts > div, figure";
  const units = new Map(sections.map((one) => [one, find(one, UNITS)]));
  const texts = new WeakMap();
  const textOf = (unit) => {
    if (!texts.has(unit)) texts.set(unit, unit.textContent.toLowerCase());
    return texts.get(unit);
  };
  const states = new Map(); // what was open before the search
  const show = (element, on) => element.classList.toggle("off", !on);
  const remember = () => {
    if (!states.size) for (const one of find(document, "details")) states.set(one, one.open);
  };
  const restore = () => {
    for (const [one, open] of states) one.open = open;
    states.clear();
  };
  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (text) => words.every((word) => text.includes(word));
    let found = 0;
    let all = 0;
    let shown = 0;
    if (words.length) remember();
    for (const section of sections) {
      const named = words.length && matches(section.firstElementChild.textContent.toLowerCase());
      let here = 0;
      for (const unit of units.get(section)) {
        const hit = !words.length || named || matches(textOf(unit));
        show(unit, hit);
        here += hit;
      }
      for (const block of find(section, ".wide, .facts, .fold").reverse()) {
        const inside = find(block, UNITS);
        const left = inside.some((unit) => !unit.classList.contains("off"));
        show(block, left || !words.length || named);
        if (words.length && left && block.matches(".fold")) block.open = true;
      }
      show(section, here || named || !words.length);
      if (words.length && (here || named)) section.open = true;
      all += units.get(section).length;
      found += here;
      shown += !section.classList.contains("off");
    }
    if (!words.length) restore();
    sections.forEach((one, at) => show(links[at], !one.classList.contains("off")));
    document.getElementById("count").textContent = words.length ? `${found} of ${all} in ${shown} sections` : "";
    document.getElementById("nothing").hidden = !words.length || shown > 0;
    mark(words);
  };
  const mark = (words) => {
    if (!CSS.highlights) return;
    CSS.highlights.delete("found");
    if (!words.length) return;
    const ranges = [];
    for (const one of [...units.values()].flat()) {
      if (ranges.length > 4000) break;
      if (!one.classList.contains("off")) rangesIn(one, words, ranges);
    }
    CSS.highlights.set("found", new Highlight(...ranges));
  };
  const rangesIn = (unit, words, ranges) => {
    const walker = document.createTreeWalker(unit, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const text = node.data.toLowerCase();
      for (const word of words) {
        for (let at = text.indexOf(word); at >= 0 && ranges.length < 4000; at = text.indexOf(word, at + word.length)) {
          const range = new Range();
          range.setStart(node, Math.min(at, node.length));
          range.setEnd(node, Math.min(at + word.length, node.length));
          ranges.push(range);
        }
      }
    }
  };
  const links = find(document, "nav a");
  let waiting = 0;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(apply, 60);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== search && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      search.select();
      search.focus();
    } else if (event.key === "Escape" && document.activeElement === search) {
      search.value = "";
      apply();
    }
  });

  // ---- fold
  const all = document.getElementById("fold-all");
  const label = () => {
    all.textContent = sections.some((one) => one.open) ? "Fold all" : "Unfold all";
  };
  all.addEventListener("click", () => {
    const open = !sections.some((one) => one.open);
    for (const one of sections) one.open = open;
    label();
  });
  for (const one of sections) one.addEventListener("toggle", label);
  const arrive = (target, tries) => {
    target.scrollIntoView(); // what comes into view on the way may have another height than was taken for it
    if (tries) requestAnimationFrame(() => arrive(target, tries - 1));
  };
  const reveal = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target && target.matches(".section")) {
      target.open = true;
      arrive(target, 8);
    }
  };
  addEventListener("hashchange", reveal);
  for (const link of links) link.addEventListener("click", () => setTimeout(reveal));
  addEventListener("beforeprint", () => {
    remember();
    for (const one of find(document, "details")) one.open = true;
  });
  addEventListener("afterprint", () => {
    if (!search.value) restore();
  });

  // ---- the header's height is what sticks below it; tables wider than the page scroll in their own box
  const near = new Set(); // boxes in view, or almost: others are measured when they come
  const fit = () => {
    document.body.style.setProperty("--head", `${document.querySelector("header").offsetHeight}px`);
    for (const box of near) box.classList.remove("scrolls");
    const wide = [...near].filter((box) => box.firstElementChild.offsetWidth > box.clientWidth + 1);
    for (const box of wide) box.classList.add("scrolls");
  };
  let fitting = 0;
  const fitSoon = () => {
    cancelAnimationFrame(fitting);
    fitting = requestAnimationFrame(fit);
  };
  const look = (entries) => {
    for (const entry of entries) near[entry.isIntersecting ? "add" : "delete"](entry.target);
    if (entries.some((entry) => entry.isIntersecting)) fitSoon();
  };
  const watch = new IntersectionObserver(look, { rootMargin: "400px" });
  for (const box of find(document, ".wide")) watch.observe(box);
  addEventListener("resize", fitSoon);

  // ---- the section that is read is marked in the list
  const here = () => {
    const line = document.querySelector("header").offsetHeight + 40;
    const current = sections.filter((one) => one.getBoundingClientRect().top <= line).length - 1;
    links.forEach((link, at) => link.classList.toggle("here", at === Math.max(current, 0)));
  };
  addEventListener("scroll", here, { passive: true });
  label();
  fit();
  here();
  reveal();
})();
