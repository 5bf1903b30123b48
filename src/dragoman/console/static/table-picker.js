// The tables of a database to choose from, beside the text that names them: names and patterns.

import { post } from "./api.js";
import { drawFindings } from "./findings.js";
import { fill, h } from "./dom.js";
import { number } from "./format.js";
import { tell } from "./dialogs.js";
import { badge, problem } from "./parts.js";
import { Table } from "./table.js";

const DEFAULT_SCHEMA = "public";
export const listed = (text) => text.split(/[,\n]/).map((each) => each.trim()).filter(Boolean);
const named = (row) => `${row.schema}.${row.name}`;
const qualified = (pattern) => (pattern.includes(".") ? pattern : `${DEFAULT_SCHEMA}.${pattern}`);

/** Whether a name or a pattern with * and ? is that of a table. */
function matches(pattern, name) {
  const parts = qualified(pattern).split(/([*?])/).map((part) => ({ "*": ".*", "?": "." })[part] ?? part.replace(/[.+^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join("")}$`, "s").test(name);
}

const isPattern = (text) => /[*?]/.test(text);
const worst = (row) => (row.findings ?? []).find((each) => each.level === "problem") ?? (row.findings ?? [])[0];

export class TablePicker {
  /** `text` is the textarea with the names; it stays the truth. */
  constructor(text, signal) {
    this.text = text;
    this.signal = signal;
    this.rows = [];
    this.table = new Table(
      [
        { name: "chosen", title: "Capture", isChoice: true, of: (row) => (this.reason(row) ? 1 : 0), show: (_, row) => this.box(row) },
        { name: "table", title: "Table", of: named, show: (name) => h("span", { class: "mono" }, name) },
        { name: "key", title: "Key", of: (row) => (row.key ?? []).join(", ") },
        { name: "identity", title: "Replica identity", of: (row) => row.replica_identity ?? "default", help: "Which columns of the old row the database sends with a change" },
        { name: "rows", title: "Rows, about", of: (row) => (row.rows_expected ?? -1) < 0 ? null : row.rows_expected, isNumber: true, show: number },
        { name: "findings", title: "The doctor says", of: (row) => worst(row)?.what ?? "", show: (what, row) => (what ? this.said(row) : badge("ok", "good")) },
      ],
      { order: { name: "table", isDown: false }, search: (row) => `${named(row)} ${worst(row)?.what ?? ""}`, placeholder: "Filter tables", label: "Tables of the database", key: named, empty: "The database has no tables that this role can see." },
    );
    this.more = h("p", { class: "muted", hidden: true }, "The database has more tables than are listed: name them below.");
    this.element = h("div", {});
    text.addEventListener("input", () => this.table.show(this.rows));
  }

  /** Ask the database; the definition names it. What fails does not keep anyone from typing names. */
  async load(definition) {
    fill(this.element, h("p", { class: "muted" }, "Asking the database for its tables …"));
    try {
      const found = await post("api/v1/capture-tables", definition, this.signal);
      this.rows = found.items;
      this.more.hidden = !found.has_more;
      fill(this.element, this.table.element, this.more);
      this.table.show(this.rows);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      fill(this.element, problem(error));
    }
  }

  /** The name or the pattern by which a table is captured. */
  reason(row) {
    return listed(this.text.value).find((each) => matches(each, named(row)));
  }

  box(row) {
    const reason = this.reason(row);
    const isByPattern = reason !== undefined && isPattern(reason);
    return h("input", {
      type: "checkbox", checked: reason !== undefined, disabled: isByPattern, title: isByPattern ? `Captured by ${reason}` : null,
      "aria-label": `Capture ${named(row)}`, onchange: (event) => this.choose(row, event.target.checked),
    });
  }

  choose(row, isChosen) {
    const others = listed(this.text.value).filter((each) => isPattern(each) || qualified(each) !== named(row));
    this.text.value = [...others, ...(isChosen ? [named(row)] : [])].join("\n");
    this.text.dispatchEvent(new Event("input", { bubbles: true }));
  }

  said(row) {
    const found = worst(row);
    return h("button", { type: "button", class: "quiet", "aria-label": `What the doctor says about ${named(row)}`, onclick: () => tell(named(row), drawFindings(row.findings)) },
      badge(found.level, found.level === "problem" ? "bad" : "warn"), ` ${found.what}`);
  }
}
