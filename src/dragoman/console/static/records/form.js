// What to look for: the fields of a search and of a tail, which are also part of the page's address.

import { choice, field } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { marked } from "../parts.js";

const DEFAULTS = { from: "-50", until: "", partitions: "", filter: "", key: "auto", value: "auto", limit: "100", records: "1000000", seconds: "30" };
const KEY_FORMS = ["auto", "utf-8", "json", "msgpack", "hex"];
const VALUE_FORMS = ["auto", "utf-8", "json", "avro", "protobuf", "msgpack", "hex"];
const NAMES = { auto: "Auto", "utf-8": "UTF-8", json: "JSON", avro: "Avro", protobuf: "Protobuf", msgpack: "MessagePack", hex: "Hex" };
const PLACES = [
  ["earliest", "all there is"], ["-50", "last 50 of each partition"], ["-1000", "last 1000 of each partition"],
  ["@-15m", "last 15 minutes"], ["@-1h", "last hour"], ["@-1d", "last day"], ["latest", "the end"],
];
const EXAMPLES = [
  ['value.amount > 10 and value.currency == "EUR"', "fields of a decoded value"],
  ['key contains "x" or headers["h"] == "y"', "texts of keys and headers"],
  ["partition in (0, 1) and offset >= 5", "positions"],
  ["timestamp > @-1h and timestamp < @2026-11-15T10:00:00Z", "times"],
  ['value.name matches "^a.*z$"', "a pattern of RE2"],
  ['value.items[0]["unit price"] != null', "places in arrays, and names with blanks"],
  ['not (value startswith "{") or value == null', "not, or, tombstones"],
];

export class Form {
  constructor(topic, search, actions) {
    this.topic = topic;
    this.fields = {};
    for (const [name, text] of Object.entries(DEFAULTS)) {
      this.fields[name] = this.field(name);
      this.fields[name].value = search.get(name) ?? text;
    }
    const { from, until, partitions, filter, key, value, limit, records, seconds } = this.fields;
    this.error = h("p", { class: "field-error", id: "filter-error", role: "alert", hidden: true });
    this.element = h("form", { class: "card search-form", onsubmit: (event) => { event.preventDefault(); actions.onSearch(); } },
      h("div", { class: "fields" },
        field("From", from), h("datalist", { id: "places" }, PLACES.map(([text, title]) => h("option", { value: text }, title))),
        field("Until", until), field("Partitions", partitions), field("Key as", key), field("Value as", value), field("At most", limit)),
      field("Filter", filter), this.error, help(),
      h("details", { class: "more" }, h("summary", {}, "Limits of a search"),
        h("div", { class: "fields" }, field("Records scanned", records), field("Seconds", seconds))),
      actions.saved, h("div", { class: "bar" }, actions.buttons));
  }

  field(name) {
    if (name === "key") return choice(named(KEY_FORMS));
    if (name === "value") return choice(named(VALUE_FORMS));
    const more = {
      from: { list: "places", required: true, title: "An offset, -50, earliest, latest, @-15m, or a time" },
      until: { list: "places", placeholder: "end" },
      partitions: { placeholder: "all", title: "Numbers such as 0,3-5" },
      filter: { placeholder: 'value.amount > 10 and key contains "x"', spellcheck: "false", autocapitalize: "off", class: "mono", "aria-describedby": "filter-error" },
      limit: { inputmode: "numeric", pattern: "[0-9]+" },
      records: { inputmode: "numeric", pattern: "[0-9]+" },
      seconds: { inputmode: "decimal", pattern: "[0-9.]+" },
    }[name];
    return h("input", { name, autocomplete: "off", ...more });
  }

  /** The fields that differ from what they are at first, for the address. */
  changed() {
    return Object.fromEntries(Object.entries(this.fields)
      .map(([name, field]) => [name, field.value.trim()])
      .filter(([name, text]) => text !== DEFAULTS[name]));
  }

  set(texts) {
    for (const [name, text] of Object.entries(texts)) this.fields[name].value = text;
  }

  text(name) {
    return this.fields[name].value.trim();
  }

  decode() {
    return { key: this.text("key"), value: this.text("value") };
  }

  /** What a tail and a search have in common. */
  common() {
    return { topic: this.topic, partitions: numbers(this.text("partitions")), filter: this.text("filter"), decode: this.decode() };
  }

  request() {
    return {
      ...this.common(),
      from: this.text("from"),
      until: this.text("until") || null,
      limit: Number(this.text("limit")),
      budget: { records: Number(this.text("records")), seconds: Number(this.text("seconds")) },
    };
  }

  /** Show what is wrong with the filter under it. Returns whether the problem is the filter's. */
  refuse(error) {
    const isMine = error?.code === "filter";
    this.error.hidden = !isMine;
    fill(this.error, isMine ? marked(error.message) : "");
    this.fields.filter.setAttribute("aria-invalid", String(isMine));
    const at = isMine ? Number(/character (\d+)/.exec(error.message)?.[1]) : 0;
    if (at) {
      this.fields.filter.focus();
      this.fields.filter.setSelectionRange(at - 1, at);
    }
    return isMine;
  }
}

const named = (forms) => forms.map((each) => [each, NAMES[each]]);

/** `0,3-5` as numbers. */
function numbers(text) {
  return text.split(",").filter((each) => each.trim()).flatMap((each) => {
    const match = /^\s*(\d{1,5})(?:\s*-\s*(\d{1,5}))?\s*$/.exec(each);
    if (!match || Number(match[2] ?? match[1]) < Number(match[1])) throw new Error(`Partitions: ${each.trim()} is no number, and no range such as 3-5.`);
    const first = Number(match[1]);
    return Array.from({ length: Number(match[2] ?? first) - first + 1 }, (_, index) => first + index);
  });
}

function help() {
  return h("details", { class: "more" }, h("summary", {}, "How to filter"),
    h("dl", { class: "facts" }, EXAMPLES.map(([example, meaning]) => [h("dt", {}, meaning), h("dd", {}, h("code", {}, example))])),
    h("p", { class: "muted" }, "Operators: == != < <= > >= in contains startswith endswith matches, and, or, not. ",
      "A missing field is null. A comparison of types that do not fit is unknown: the record is no match, and is counted."));
}
