// Files that a page makes of what it shows.

import { h } from "./dom.js";
import { isMissing } from "./format.js";

/** Keep a text, or parts of one, as a file. */
export function download(name, type, ...parts) {
  const address = URL.createObjectURL(new Blob(parts, { type }));
  h("a", { href: address, download: name }).click();
  // Browsers begin to read it after the click.
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

// What a spreadsheet takes for a formula.
const FORMULA = /^[=+\-@\t\r]/;

function cell(value) {
  if (isMissing(value)) return "";
  if (typeof value !== "string") return String(value);
  const text = FORMULA.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Rows as CSV. A text that a spreadsheet would run begins with an apostrophe. */
const csvOf = (rows) => rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";

/** A button that keeps what `rows()` returns as a file. */
export function csvButton(title, rows) {
  const name = title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
  return h("button", { type: "button", class: "quiet file", title: "Keep what is shown as a file", "aria-label": `CSV: ${title}`,
    onclick: () => download(`${name}.csv`, "text/csv", csvOf(rows())) }, "CSV");
}
