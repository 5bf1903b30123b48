// The records that were found: a table whose rows open, newest or oldest first.

import { fill, h } from "../dom.js";
import { NOTHING, time } from "../format.js";
import { preview } from "./content.js";

const COLUMNS = ["Time", "Partition", "Offset", "Key", "Value"];
const WITH_TOPIC = ["Time", "Topic", ...COLUMNS.slice(1)];

export class RecordList {
  /** Keeps at most `max` records, the newest ones. With `hasTopic` they are of several topics. */
  constructor(onOpen, max, { hasTopic = false } = {}) {
    this.hasTopic = hasTopic;
    this.columns = hasTopic ? WITH_TOPIC : COLUMNS;
    this.onOpen = onOpen;
    this.max = max;
    this.records = [];
    this.names = new Set();
    this.isNewestFirst = true;
    this.body = h("tbody", {});
    this.order = h("select", { "aria-label": "Order", onchange: () => { this.isNewestFirst = this.order.value === "new"; this.draw(); } },
      h("option", { value: "new" }, "Newest first"), h("option", { value: "old" }, "Oldest first"));
    this.element = h("div", { class: `scroller records${hasTopic ? " of-topics" : ""}`, tabindex: "0", role: "region", "aria-label": "Records" },
      h("table", {}, h("thead", {}, h("tr", {}, this.columns.map((each) => h("th", { scope: "col", class: isNumber(each) ? "number" : null }, each)))), this.body));
  }

  nameOf(record) {
    return `${this.hasTopic ? `${record.topic}@` : ""}${record.partition}:${record.offset}`;
  }

  clear(text) {
    this.records = [];
    this.names.clear();
    this.say(text);
  }

  say(text) {
    fill(this.body, h("tr", {}, h("td", { colspan: this.columns.length, class: "muted" }, text)));
  }

  add(records) {
    for (const each of records) {
      const name = this.nameOf(each);
      if (this.names.has(name)) continue;
      this.names.add(name);
      this.records.push(each);
    }
    if (this.planned) return;
    // Drawn once for all that come in one frame.
    this.planned = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.planned = null;
    this.records.sort(compared);
    const tooMany = Math.max(this.records.length - this.max, 0);
    for (const each of this.records.splice(0, tooMany)) this.names.delete(this.nameOf(each));
    if (!this.records.length) return;
    const focused = document.activeElement?.closest?.("tr")?.dataset.record;
    const rows = this.records.map((each) => this.row(each));
    fill(this.body, this.isNewestFirst ? rows.reverse() : rows);
    if (focused) this.focus(focused);
  }

  row(record) {
    const name = this.nameOf(record);
    record.element ??= h("tr", { "data-record": name, onclick: (event) => this.opened(event, record) },
      h("td", { class: "nowrap" }, record.timestamp < 0 ? NOTHING : time(record.timestamp, true)),
      this.hasTopic ? h("td", { class: "content" }, record.topic) : null,
      h("td", { class: "number", "data-title": "partition" }, record.partition),
      h("td", { class: "number", "data-title": "offset" }, h("button", { class: "row", type: "button", "aria-label": `Open partition ${record.partition}, offset ${record.offset}` }, record.offset)),
      h("td", { class: "content" }, preview(record.key)),
      h("td", { class: "content" }, preview(record.value)));
    return record.element;
  }

  opened(event, record) {
    // A text that is being marked is not a click.
    if (!event.target.closest("button") && String(getSelection())) return;
    this.onOpen(record);
  }

  /** Mark a record, or the one with this name; null: none. */
  mark(chosen) {
    const name = chosen?.partition === undefined ? chosen : this.nameOf(chosen);
    for (const row of this.body.querySelectorAll("tr[data-record]")) row.classList.toggle("chosen", row.dataset.record === name);
  }

  focus(name) {
    this.body.querySelector(`tr[data-record="${CSS.escape(name)}"] button`)?.focus({ preventScroll: true });
  }
}

const isNumber = (title) => title === "Partition" || title === "Offset";
const compared = (one, other) => one.timestamp - other.timestamp || one.partition - other.partition || one.offset - other.offset;
