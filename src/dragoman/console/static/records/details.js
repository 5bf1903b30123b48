// One record beside the list: key, value and headers with all that is known about them.

import { get, query } from "../api.js";
import { fill, h } from "../dom.js";
import { bytes, number, time } from "../format.js";
import { badge, copyButton, facts, problem, warning } from "../parts.js";
import { bytesOf, coloured, hexadecimal, isJson, pretty } from "./content.js";

/** `choice` has the decoders; `address(record)` gives a permanent link; `onClose` is called once. */
export class Details {
  constructor(topic, address, onClose, { namesTopic = false } = {}) {
    this.namesTopic = namesTopic;
    this.topic = topic;
    this.address = address;
    this.onClose = onClose;
    this.title = h("h2", { id: "record-title", tabindex: "-1" });
    this.body = h("div", {});
    this.element = h("aside", { class: "panel", "aria-labelledby": "record-title", hidden: true },
      h("div", { class: "panel-head" }, this.title,
        h("button", { class: "quiet", onclick: () => this.close(), "aria-label": "Close the record" }, "✕")),
      this.body);
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
  }

  async open(partition, offset, choice, signal) {
    this.element.hidden = false;
    this.opened = `${partition}:${offset}`;
    const mine = this.opened;
    this.title.textContent = `${this.namesTopic ? `${this.topic}, p` : "P"}artition ${partition}, offset ${offset}`;
    fill(this.body, h("p", { class: "muted" }, "Reading…"));
    this.title.focus();
    const where = { topic: this.topic, partition, offset };
    try {
      const record = await get(`records/one${query({ ...where, ...choice })}`, signal);
      if (this.opened === mine) fill(this.body, this.content(record, where));
    } catch (error) {
      if (error.name !== "AbortError" && this.opened === mine) fill(this.body, problem(error));
    }
  }

  close() {
    if (this.element.hidden) return;
    this.element.hidden = true;
    this.opened = null;
    this.onClose();
  }

  content(record, where) {
    const stamp = record.timestamp < 0 ? "none" : [time(record.timestamp, true), " ",
      h("span", { class: "muted" }, `${new Date(record.timestamp).toISOString()}, ${record.timestamp}`)];
    return [
      facts([["Time", stamp]]),
      h("p", {}, copyButton("link", () => new URL(this.address(record.partition, record.offset), location.href).href, "Copy link")),
      part("Key", record.key, `records/bytes${query({ ...where, part: "key" })}`),
      part("Value", record.value, `records/bytes${query({ ...where, part: "value" })}`),
      h("section", {}, h("h3", {}, `Headers (${number(record.header_count)})`), headers(record)),
    ];
  }
}

function headers({ headers: given, header_count: count }) {
  if (!given.length) return h("p", { class: "muted" }, "None.");
  const cell = (shown) => (shown === null ? badge("null") : h("span", { class: "mono" }, shown.text, shown.is_cut ? "…" : ""));
  const rest = count > given.length ? h("p", { class: "muted" }, `The first ${number(given.length)} are shown; an export has all.`) : null;
  return [rest, h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Headers" },
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Name"), h("th", { scope: "col" }, "Value"))),
      h("tbody", {}, given.map((each) => h("tr", {}, h("td", { class: "mono" }, each.name), h("td", { class: "wrap" }, cell(each.value)))))))];
}

function part(title, shown, download) {
  if (shown === null) {
    const note = title === "Value" ? " A tombstone: compaction removes the key." : "";
    return h("section", {}, h("h3", {}, title), h("p", {}, badge("null"), note));
  }
  const raw = bytesOf(shown.base64 ?? "");
  const decoded = isJson(shown) ? pretty(shown.text) : shown.text;
  const views = {
    Decoded: () => (isJson(shown) ? coloured(decoded) : shown.form === "hex" ? hexadecimal(raw) : decoded),
    Raw: () => new TextDecoder().decode(raw),
    Hex: () => hexadecimal(raw),
  };
  const content = h("pre", { tabindex: "0", role: "region", "aria-label": title });
  const buttons = Object.keys(views).map((name) =>
    h("button", { class: "quiet", type: "button", onclick: () => choose(name) }, name));
  const choose = (name) => {
    fill(content, views[name]());
    content.classList.toggle("hex", name === "Hex" || (name === "Decoded" && shown.form === "hex"));
    buttons.forEach((each) => each.setAttribute("aria-pressed", String(each.textContent === name)));
  };
  choose("Decoded");
  return h("section", {},
    h("div", { class: "part-head" }, h("h3", {}, title), badge(shown.form), h("span", { class: "muted" }, bytes(shown.size)),
      shown.schema_id === undefined ? null : badge(`schema ${shown.schema_id}`)),
    h("div", { class: "part-head" }, h("div", { class: "choice", role: "group", "aria-label": `${title} as` }, buttons),
      copyButton(title, () => content.textContent),
      h("a", { href: download, download: "" }, "Download")),
    shown.note ? warning(shown.note, "note") : null,
    content,
    shown.is_cut ? warning("Only the beginning is shown; the download has all of it.", "cut") : null);
}
