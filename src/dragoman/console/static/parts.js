// Pieces that several pages show.

import { fill, h } from "./dom.js";
import { unanswered } from "./format.js";

/** A link within the console: `link("#/topics/a", "a")`. */
export const link = (address, ...text) => h("a", { href: address }, ...text);

/** The address of a page; each name is escaped. */
export const to = (...parts) => `#/${parts.map((each) => encodeURIComponent(each)).join("/")}`;

/** Text in which `backquotes` mark code. */
export const marked = (text) => text.split("`").map((each, index) => (index % 2 ? h("code", {}, each) : each));

export const badge = (text, kind = "plain") => h("span", { class: `badge ${kind}` }, text);

export const card = (title, ...content) => h("section", { class: "card" }, title ? h("h2", {}, title) : null, content);

/** A name and a value for each entry. */
export const facts = (entries) =>
  h("dl", { class: "facts" }, entries.filter(Boolean).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

/** A figure that is read from afar. */
export const figure = (name, value, note) =>
  h("div", { class: "figure" }, h("span", { class: "muted" }, name), h("strong", {}, value), note ? h("small", {}, note) : null);

/** What a failure is, and what to do about it. */
export function problem(error) {
  const [title, remedy] = meaning(error);
  return h("div", { class: "problem", role: "alert" },
    h("p", {}, title, error.message, error.code ? h("code", {}, error.code) : null),
    remedy ? h("p", { class: "remedy" }, remedy) : null);
}

/** The same in one line. */
export function explained(error) {
  const [title, remedy] = meaning(error);
  return [`${title}${error.message}`, remedy].filter(Boolean).join(" – ");
}

function meaning(error) {
  if (error.status === 403 && error.code !== "read_only") return ["A right is missing: ", "An administrator grants rights with dragoman acl add."];
  if (error.status === 404) return ["", "It may have been deleted since the page was loaded."];
  if (error.status === 503) return ["", "The same request may succeed later."];
  return ["", null];
}

/** What a user should know before relying on what is shown; `word` is its badge. */
export const warning = (text, word = "warning") => h("p", { class: "warning" }, badge(word, "warn"), " ", text);

/** The value of a promise, or its error: a page shows what it may. Aborted requests are no errors. */
export async function settled(promise) {
  try {
    return { value: await promise };
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return { error };
  }
}

/** Names the nodes whose part of a list is missing, if there are any. */
export class Silent {
  constructor(what) {
    this.what = what;
    this.element = h("div", { role: "status" });
  }

  show(nodes) {
    fill(this.element, nodes.length ? warning(`${unanswered(nodes)}: ${this.what}`) : null);
  }
}

/** A column with the node that a row is from. */
export const nodeColumn = { name: "node", title: "Node", of: (row) => row.node, isNumber: true };

/** A button that copies a text; `text` may be a function that gives it. */
export function copyButton(name, text, title = "Copy") {
  const button = h("button", {
    class: "quiet", type: "button", "aria-label": `Copy ${name}`,
    onclick: async () => {
      try {
        await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
        button.textContent = "Copied";
        setTimeout(() => (button.textContent = title), 2000);
      } catch {
        toast("The browser does not allow copying here.", "bad");
      }
    },
  }, title);
  return button;
}

/** A line to copy. */
export const copied = (name, text) => h("div", { class: "same" }, h("span", { class: "muted" }, name), h("code", {}, text), copyButton(name, text));

/** Several lines to copy. */
export const snippet = (title, text) =>
  h("div", { class: "snippet" }, h("div", { class: "bar" }, h("h3", {}, title), copyButton(title, text)), h("pre", { tabindex: "0" }, text));

export function toast(text, kind = "plain") {
  let box = document.querySelector(".toasts");
  if (!box) {
    box = h("div", { class: "toasts", role: "status", "aria-live": "polite" });
    document.body.append(box);
  }
  const made = h("div", { class: `toast ${kind}` }, text);
  box.append(made);
  setTimeout(() => made.remove(), 6000);
}

/** Tabs whose choice is part of the address. */
export function tabs(base, names, chosen) {
  return h("nav", { class: "tabs", "aria-label": "Views" },
    names.map(([key, title]) =>
      h("a", { href: key ? `${base}/${key}` : base, "aria-current": key === chosen ? "page" : null }, title)));
}
