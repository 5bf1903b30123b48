"use strict";
// Search, the switch between light and dark, the menu of narrow windows, and copies of code.

const root = document.body.dataset.root;

// ---- light and dark

document.querySelector(".theme").addEventListener("click", () => {
  const html = document.documentElement;
  const isDark = html.dataset.theme
    ? html.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  html.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("theme", html.dataset.theme); } catch {}
});

// ---- menu

const menu = document.querySelector(".menu");
menu.addEventListener("click", () => {
  const isShown = document.getElementById("navigation").classList.toggle("shown");
  menu.setAttribute("aria-expanded", String(isShown));
  scrollTo(0, 0);
});

const current = document.querySelector(".navigation [aria-current]");
if (current && current.offsetTop > innerHeight) current.scrollIntoView({ block: "center" });

// ---- copies of code: of a session, only what is typed

for (const block of document.querySelectorAll("pre.code")) {
  const button = document.createElement("button");
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    const text = block.querySelector("code").textContent;
    const typed = text.split("\n").filter((line) => line.startsWith("$ "));
    await navigator.clipboard.writeText(
      typed.length ? typed.map((line) => line.slice(2)).join("\n") : text.trimEnd());
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  if (navigator.clipboard) block.append(button);
}

// ---- search

const ROWS_MAX = 20;
const form = document.querySelector(".search");
const input = form.querySelector("input");
const results = form.querySelector(".results");
let searchIndex = null;
let isLoading = false;

// The index is a script, because pages opened from files may not fetch.
input.addEventListener("focus", () => {
  if (searchIndex || isLoading) return;
  isLoading = true;
  const script = document.createElement("script");
  script.src = root + "search.js";
  script.addEventListener("load", show);
  document.head.append(script);
});
input.addEventListener("input", show);

function found(words) {
  const rows = [];
  for (const [place, title, heading, text] of searchIndex) {
    const names = (title + " " + heading).toLowerCase();
    const body = text.toLowerCase();
    let points = 0;
    for (const word of words) {
      const inNames = names.includes(word);
      const inBody = body.includes(word);
      if (!inNames && !inBody) { points = 0; break; }
      points += inNames ? 12 : 1;
      if (heading.toLowerCase() === word || title.toLowerCase() === word) points += 20;
      if (!heading && title.toLowerCase().includes(word)) points += 8;
      if (inBody) points += Math.min(4, body.split(word).length - 1);
    }
    if (words.length > 1 && body.includes(words.join(" "))) points += 6;
    // Histories and lists of limits name everything.
    if (/^(changelog|reference\/limits|benchmarks|decisions)/.test(place)) points /= 3;
    if (points) rows.push({ points, place, title, heading, text });
  }
  return rows.sort((one, other) => other.points - one.points).slice(0, ROWS_MAX);
}

function show() {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  results.hidden = !words.length || !searchIndex;
  if (results.hidden) return;
  const rows = found(words);
  results.replaceChildren(...rows.map((row) => entry(row, words)));
  if (!rows.length) {
    const none = document.createElement("p");
    none.textContent = "Nothing found.";
    results.append(none);
  }
}

function entry({ place, title, heading, text }, words) {
  const link = document.createElement("a");
  link.href = root + place;
  const name = document.createElement("strong");
  name.textContent = heading ? `${title} › ${heading}` : title;
  const passage = document.createElement("span");
  const at = Math.min(...words.map((word) => {
    const index = text.toLowerCase().indexOf(word);
    return index < 0 ? Infinity : index;
  }));
  const begin = at === Infinity ? 0 : Math.max(0, at - 50);
  marked(passage, (begin ? "…" : "") + text.slice(begin, begin + 170), words);
  link.append(name, passage);
  return link;
}

function marked(element, text, words) {
  const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  for (const [index, part] of text.split(new RegExp(`(${escaped.join("|")})`, "i")).entries()) {
    if (index % 2) {
      const mark = document.createElement("mark");
      mark.textContent = part;
      element.append(mark);
    } else element.append(part);
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const link = results.querySelector(".chosen") || results.querySelector("a");
  if (link) location.href = link.href;
});
form.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { results.hidden = true; input.blur(); }
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  event.preventDefault();
  const links = [...results.querySelectorAll("a")];
  const chosen = links.findIndex((link) => link.classList.contains("chosen"));
  const next = chosen + (event.key === "ArrowDown" ? 1 : -1);
  links.forEach((link, index) => link.classList.toggle("chosen", index === next));
  links[next]?.scrollIntoView({ block: "nearest" });
});
// A link to a heading of the page that is shown leaves the page where it is.
results.addEventListener("click", () => { results.hidden = true; });
document.addEventListener("click", (event) => {
  if (!form.contains(event.target)) results.hidden = true;
});
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, textarea");
  if (event.key === "/" && !isTyping) { event.preventDefault(); input.focus(); }
});
