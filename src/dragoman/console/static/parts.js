// Pieces that several pages show.

import { fill, h } from "./dom.js";

/** A link within the console: `link("#/topics/a", "a")`. */
export const link = (address, ...text) => h("a", { href: address }, ...text);

/** The address of a page; each name is escaped. */
export const to = (...parts) => `#/${parts.map((each) => encodeURIComponent(each)).join("/")}`;

export const badge = (text, kind = "plain") => h("span", { class: `badge ${kind}` }, text);

export const card = (title, ...content) => h("section", { class: "card" }, h("h2", {}, title), content);

/** A name and a value for each entry. */
export const facts = (entries) =>
  h("dl", { class: "facts" }, entries.filter(Boolean).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

/** A figure that is read from afar. */
export const figure = (name, value, note) =>
  h("div", { class: "figure" }, h("span", { class: "muted" }, name), h("strong", {}, value), note ? h("small", {}, note) : null);

export function problem(error) {
  return h("p", { class: "problem", role: "alert" }, error.message, error.code ? h("code", {}, error.code) : null);
}

/** How to do the same on the command line and over HTTP. */
export function equivalent(command, request) {
  const line = (name, text) =>
    h("div", { class: "same" }, h("span", { class: "muted" }, name), h("code", {}, text),
      h("button", { class: "quiet", onclick: () => navigator.clipboard?.writeText(text) }, "Copy"));
  return h("details", { class: "equivalent" }, h("summary", {}, "Command line and API"),
    line("CLI", command), request ? line("HTTP", request) : null);
}

/** A word as the shell takes it. */
export const shell = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

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
