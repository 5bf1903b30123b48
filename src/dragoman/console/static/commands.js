// The same on the command line and over HTTP.

import { h } from "./dom.js";
import { copied } from "./parts.js";

// Line feeds and tabs are harmless between quotes.
const CONTROL = /[\0-\x08\x0b-\x1f\x7f-\x9f]/;
const CONTROLS = new RegExp(CONTROL, "g");

/** A word as the shell takes it. A terminal would act on control characters that are pasted: they are escaped. */
export function shell(word) {
  const text = String(word);
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  if (!CONTROL.test(text)) return `'${text.replaceAll("'", "'\\''")}'`;
  const escaped = text.replace(/[\\']/g, "\\$&").replace(CONTROLS, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return `$'${escaped}'`;
}

/** An option of a command, if it has a value. */
export const option = (name, value) => (isSet(value) && value !== "" ? [name, value] : []);

/** A command that asks the console's node: `command(state, "topic delete", name, "--yes")`. Words that are not set are left out. */
export const command = (state, name, ...words) =>
  ["dragoman", name, ...[...words, "--server", state.server].flat().filter(isSet).map(shell)].join(" ");

const isSet = (word) => word !== null && word !== undefined && word !== false;

/** A request to the console's node. */
export const request = (state, method, path) => `${method} ${state.server}/${path}`;

/** Commands and requests that do what a page does. */
export function equivalent(commands, requests) {
  return h("details", { class: "equivalent" }, h("summary", {}, "Command line and API"),
    [commands].flat().map((each) => copied("CLI", each)), [requests].flat().map((each) => copied("HTTP", each)));
}
