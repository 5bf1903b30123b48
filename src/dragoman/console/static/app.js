// The frame around the pages: navigation, addresses, session and theme.

import { Problem, get, remove, session } from "./api.js";
import { closeDialogs } from "./dialogs.js";
import { fill, h } from "./dom.js";
import { askAgain, loginForm } from "./login.js";
import { marked, problem } from "./parts.js";

// Pages by the first part of their address; each module is loaded when it is first shown. A third
// word names the page that they are a part of.
const PAGES = {
  "": ["overview.js", "Overview"],
  topics: ["topics.js", "Topics"],
  tail: ["tail.js", "Live tail", "topics"],
  groups: ["groups.js", "Groups"],
  cluster: ["cluster.js", "Cluster"],
  captures: ["captures.js", "Captures"],
  pipelines: ["pipelines.js", "Pipelines"],
  "dead-letters": ["dead-letters.js", "Dead letters"],
  connections: ["connections.js", "Connections"],
  security: ["security.js", "Security"],
  sql: ["sql.js", "SQL"],
};
const REFRESH_MS = 5000;

const state = { user: null, isReadOnly: true, needsLogin: false, server: "", bootstrap: "", version: "" };
let shown = null;

const main = h("main", { id: "main", tabindex: "-1" });
const navigation = h("nav", { class: "pages", "aria-label": "Pages" });
const account = h("div", { class: "account" });
const header = h(
  "header",
  {},
  h("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault(); main.focus(); } }, "Skip to content"),
  h("a", { class: "brand", href: "#/" }, h("img", { src: "static/icon.svg", alt: "", width: 22, height: 22 }), "Dragoman"),
  navigation,
  account,
);

function route() {
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  try {
    return { name, parts: rest.map(decodeURIComponent), search: new URLSearchParams(search ?? "") };
  } catch {
    // A % that escapes nothing.
    return { name: null };
  }
}

async function show() {
  const wanted = route();
  shown?.controller.abort();
  clearTimeout(shown?.timer);
  const controller = new AbortController();
  const mine = { controller, timer: 0, refresh: null };
  stale.hidden = true;
  shown = mine;
  drawNavigation(wanted.name);
  const page = Object.hasOwn(PAGES, wanted.name) ? PAGES[wanted.name] : null;
  if (!page) {
    fill(main, h("h1", {}, "No such page"), h("p", {}, "The address names no page of the console."));
    return;
  }
  document.title = `${page[1]} · Dragoman`;
  main.setAttribute("aria-busy", "true");
  try {
    const module = await import(`./pages/${page[0]}`);
    if (shown !== mine) return;
    const place = h("div", { class: "page" });
    const made = await module.show(place, { ...wanted, state, signal: controller.signal });
    if (shown !== mine) return;
    fill(main, place);
    document.querySelectorAll("nav").forEach(reveal);
    document.title = `${made?.title ?? page[1]} · Dragoman`;
    mine.refresh = made?.refresh;
    plan(mine);
  } catch (error) {
    if (shown === mine && error.name !== "AbortError") fill(main, h("h1", {}, page[1]), problem(error));
  } finally {
    if (shown === mine) main.removeAttribute("aria-busy");
  }
}

// A page that is not looked at is not refreshed.
function plan(mine) {
  if (!mine.refresh) return;
  mine.timer = setTimeout(async () => {
    try {
      if (!document.hidden) await mine.refresh();
      stale.hidden = true;
    } catch (error) {
      if (error.name !== "AbortError") {
        stale.hidden = false;
        stale.textContent = `These figures are no longer updated: ${error.message}`;
      }
    }
    if (shown === mine) plan(mine);
  }, REFRESH_MS);
}

const stale = h("p", { class: "stale", role: "status", hidden: true });

// The links stay as they are, so that the one that was followed keeps the focus.
function drawNavigation(name) {
  const pages = Object.entries(PAGES).filter(([, [, , parent]]) => parent === undefined);
  if (!navigation.firstChild) fill(navigation, pages.map(([key, [, title]]) => h("a", { href: `#/${key}` }, title)));
  pages.forEach(([key], index) => {
    const each = navigation.children[index];
    if (key === (PAGES[name]?.[2] ?? name)) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  });
}

/** Scroll a row of links so that the current one is seen. */
function reveal(row) {
  const current = row.querySelector("[aria-current]");
  if (!current) return;
  const [outer, inner] = [row.getBoundingClientRect(), current.getBoundingClientRect()];
  if (inner.right > outer.right) row.scrollLeft += inner.right - outer.right;
  else if (inner.left < outer.left) row.scrollLeft += inner.left - outer.left;
}

function drawAccount() {
  const theme = h("button", { class: "quiet", title: "Light or dark", "aria-label": "Light or dark", onclick: turnTheme }, "◐");
  const who = state.user === null
    ? state.needsLogin ? null : h("button", { class: "quiet", onclick: askLogin }, "Log in")
    : h("button", { class: "quiet", onclick: logOut, title: "Log out" }, `${state.user || "token"} · Log out`);
  fill(account, state.isReadOnly && !state.needsLogin ? h("span", { class: "badge plain" }, "read-only") : null, who, theme);
}

function turnTheme() {
  const root = document.documentElement;
  const isDark = getComputedStyle(root).colorScheme.trim() === "dark";
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}

// ---- session

async function begin() {
  const found = await learn();
  if (found.obstacle) sayObstacle(found.obstacle);
  else if (found.needs_login) askLogin();
  else await show();
}

/** Learn who is logged in, and what they may try. */
async function learn() {
  const found = await get("session");
  Object.assign(state, {
    user: found.user,
    isReadOnly: found.is_read_only,
    server: found.server,
    bootstrap: found.bootstrap,
    version: found.version,
  });
  state.needsLogin = found.needs_login;
  drawAccount();
  return found;
}

function sayObstacle(text) {
  shown?.controller.abort();
  document.title = "No login · Dragoman";
  fill(main, h("section", { class: "card login" },
    h("h1", {}, "No user can log in"),
    h("p", {}, marked(text[0].toUpperCase() + text.slice(1)), "."),
    h("button", { onclick: () => begin() }, "Try again")));
}

function askLogin() {
  shown?.controller.abort();
  clearTimeout(shown?.timer);
  stale.hidden = true;
  document.title = "Log in · Dragoman";
  const form = loginForm({
    title: "Log in", notes: h("p", { class: "muted" }, "As a user of ", h("code", {}, state.server || "the node"), "."), user: null, onDone: begin,
  });
  fill(main, form);
  form.elements.user.focus();
}

async function logOut() {
  await remove("session");
  await begin();
}

let asking = null;
session.renew = () => (asking ??= again().finally(() => (asking = null)));

/** Have the user log in again in front of the page, which goes on if it is the same one. */
async function again() {
  const before = state.user;
  if (before === null) {
    // The page began without a login, which is needed by now.
    const { needs_login: needsLogin, obstacle } = await learn();
    if (needsLogin || obstacle) await begin();
    return false;
  }
  const isBack = await askAgain(before);
  await learn();
  if (isBack && state.user === before) return true;
  closeDialogs();
  if (isBack) show();
  else await begin();
  return false;
}

// ---- start

const chosen = localStorage.getItem("theme");
if (chosen) document.documentElement.dataset.theme = chosen;
document.body.append(header, stale, main);
window.addEventListener("hashchange", () => { closeDialogs(); show(); window.scrollTo(0, 0); });
begin().catch((error) => fill(main, h("h1", {}, "Dragoman"), problem(error instanceof Problem ? error : new Problem(0, "fault", String(error)))));
