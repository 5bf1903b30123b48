// Pieces that several pages show.

import { fill, h } from "./dom.js";

/** A link within the console: `link("#/topics/a", "a")`. */
export const link = (address, ...text) => h("a", { href: address }, ...text);

/** The address of a page; each name is escaped. */
export const to = (...parts) => `#/${parts.map((each) => encodeURIComponent(each)).join("/")}`;

/** Text in which `backquotes` mark code. */
export const marked = (text) => text.split("`").map((each, index) => (index % 2 ? h("code", {}, each) : each));

export const badge = (text, kind = "plain") => h("span", { class: `badge ${kind}` }, text);

export const card = (title, ...content) => h("section", { class: "card" }, h("h2", {}, title), content);

/** A name and a value for each entry. */
export const facts = (entries) =>
  h("dl", { class: "facts" }, entries.filter(Boolean).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

/** A figure that is read from afar. */
export const figure = (name, value, note) =>
  h("div", { class: "figure" }, h("span", { class: "muted" }, name), h("strong", {}, value), note ? h("small", {}, note) : null);

/** What a failure is, and what to do about it. */
export function problem(error) {
  return h("div", { class: "problem", role: "alert" },
    h("p", {}, remedyTitle(error), error.message, error.code ? h("code", {}, error.code) : null),
    remedy(error) ? h("p", { class: "remedy" }, remedy(error)) : null);
}

const remedyTitle = (error) => (error.status === 403 && error.code !== "read_only" ? "A right is missing: " : "");

function remedy(error) {
  if (error.status === 403 && error.code !== "read_only") return "An administrator grants rights with dragoman acl add.";
  if (error.status === 404) return "It may have been deleted since the page was loaded.";
  if (error.status === 503) return "The same request may succeed later.";
  return null;
}

/** The value of a promise, or its error: a page shows what it may. Aborted requests are no errors. */
export async function settled(promise) {
  try {
    return { value: await promise };
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return { error };
  }
}

/** A line to copy. */
export function copied(name, text) {
  const button = h("button", {
    class: "quiet", type: "button", "aria-label": `Copy ${name}`,
    onclick: async () => {
      await navigator.clipboard?.writeText(text);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 2000);
    },
  }, "Copy");
  return h("div", { class: "same" }, h("span", { class: "muted" }, name), h("code", {}, text), button);
}

/** Several lines to copy. */
export function snippet(title, text) {
  const button = h("button", {
    class: "quiet", type: "button", "aria-label": `Copy ${title}`,
    onclick: async () => {
      await navigator.clipboard?.writeText(text);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 2000);
    },
  }, "Copy");
  return h("div", { class: "snippet" }, h("div", { class: "bar" }, h("h3", {}, title), button), h("pre", { tabindex: "0" }, text));
}

/** How to do the same on the command line and over HTTP. */
export function equivalent(command, request) {
  return h("details", { class: "equivalent" }, h("summary", {}, "Command line and API"),
    [command].flat().map((each) => copied("CLI", each)), [request].flat().filter(Boolean).map((each) => copied("HTTP", each)));
}

/** A word as the shell takes it. A terminal would act on control characters that are pasted: they are escaped. */
export function shell(text) {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  if (!CONTROL.test(text)) return `'${text.replaceAll("'", "'\\''")}'`;
  const escaped = text.replace(/[\\']/g, "\\$&").replace(CONTROLS, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return `$'${escaped}'`;
}
// Line feeds and tabs are harmless between quotes.
const CONTROL = /[\0-\x08\x0b-\x1f\x7f-\x9f]/;
const CONTROLS = new RegExp(CONTROL, "g");

/** Ask before something is done; resolves to whether it was confirmed. */
export function confirmed(title, content, action, isDangerous = true) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-label": title },
      h("h2", {}, title), content,
      h("div", { class: "actions" },
        h("button", { onclick: () => dialog.close() }, "Cancel"),
        h("button", { class: isDangerous ? "danger" : "primary", onclick: () => dialog.close("yes") }, action)));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

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

export { fill, h };
