// The frame around the pages: navigation, addresses, session and theme.

import { Problem, get, post, remove, session } from "./api.js";
import { fill, h } from "./dom.js";
import { problem } from "./parts.js";

// Pages by the first part of their address; each module is loaded when it is first shown.
const PAGES = {
  "": ["overview.js", "Overview"],
  topics: ["topics.js", "Topics"],
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
  if (!navigation.firstChild) fill(navigation, Object.entries(PAGES).map(([key, [, title]]) => h("a", { href: `#/${key}` }, title)));
  Object.keys(PAGES).forEach((key, index) => {
    const each = navigation.children[index];
    if (key === name) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  });
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
  if (found.obstacle) sayObstacle(found.obstacle);
  else if (found.needs_login) askLogin();
  else await show();
}

// What is between backticks is to be typed.
const commands = (text) => text.split("`").map((each, index) => (index % 2 ? h("code", {}, each) : each));

function sayObstacle(text) {
  shown?.controller.abort();
  document.title = "No login · Dragoman";
  fill(main, h("section", { class: "card login" },
    h("h1", {}, "Nobody can log in"),
    h("p", {}, commands(text[0].toUpperCase() + text.slice(1)), "."),
    h("button", { onclick: () => begin() }, "Try again")));
}

function askLogin() {
  shown?.controller.abort();
  const name = h("input", { name: "user", autocomplete: "username", required: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password" });
  const token = h("input", { name: "token", type: "password", autocomplete: "off" });
  const said = h("div", {});
  const send = async (body) => {
    try {
      await post("session", body);
      await begin();
    } catch (error) {
      fill(said, problem(error));
    }
  };
  const form = h(
    "form",
    { class: "card login", onsubmit: (event) => { event.preventDefault(); send({ user: name.value, password: password.value }); } },
    h("h1", {}, "Log in"),
    h("p", { class: "muted" }, "As a user of ", h("code", {}, state.server || "the node"), "."),
    h("label", {}, "User", name),
    h("label", {}, "Password", password),
    h("button", { class: "primary" }, "Log in"),
    said,
    h("details", {}, h("summary", {}, "With an API token"),
      h("label", {}, "Token", token),
      h("button", { type: "button", onclick: () => send({ token: token.value }) }, "Log in with the token")),
  );
  document.title = "Log in · Dragoman";
  fill(main, form);
  name.focus();
}

async function logOut() {
  await remove("session");
  await begin();
}

session.onEnded = () => {
  state.user = null;
  state.needsLogin = true;
  drawAccount();
  askLogin();
};

// ---- start

const chosen = localStorage.getItem("theme");
if (chosen) document.documentElement.dataset.theme = chosen;
document.body.append(header, stale, main);
window.addEventListener("hashchange", () => { show(); window.scrollTo(0, 0); });
begin().catch((error) => fill(main, h("h1", {}, "Dragoman"), problem(error instanceof Problem ? error : new Problem(0, "fault", String(error)))));
