// Writing a record, over the node's API.

import { api, post } from "../api.js";
import { change, choice, field } from "../dialogs.js";
import { h } from "../dom.js";

const FORMS = [["text", "Text"], ["json", "JSON"], ["base64", "Base64"], ["null", "null"]];

export function askRecord(topic, onWritten) {
  const key = payload("Key", "null", h("input", { autocomplete: "off", class: "mono" }));
  const value = payload("Value", "json", h("textarea", { rows: 8, class: "mono", spellcheck: "false" }));
  const headers = h("textarea", { rows: 2, class: "mono", spellcheck: "false", placeholder: "name=value, one in a line" });
  const partition = h("input", { inputmode: "numeric", pattern: "[0-9]*", placeholder: "by the key" });
  change({
    title: "Produce a record",
    fields: [key.element, value.element, field("Headers", headers), field("Partition", partition)],
    apply: async () => {
      const record = { key: key.content(), value: value.content(), headers: pairs(headers.value) };
      if (partition.value.trim()) record.partition = Number(partition.value);
      const { items: [written] } = await post(api("topics", topic, "records"), { records: [record] });
      if (written.problem) throw new Error(written.problem);
      return `Written to partition ${written.partition} at offset ${written.offset}.`;
    },
    verb: "Produce", onDone: onWritten,
  });
}

function payload(title, first, input) {
  const form = choice(FORMS, first, { "aria-label": `${title} is`, onchange: () => adapt() });
  const adapt = () => { input.disabled = form.value === "null"; };
  adapt();
  input.setAttribute("aria-label", title);
  return {
    element: h("div", { class: "with-form" }, h("span", { class: "muted" }, title), form, input),
    content() {
      const text = input.value;
      if (form.value === "null") return null;
      if (form.value === "base64") return { base64: text.trim() };
      if (form.value === "json") {
        try {
          JSON.parse(text);
        } catch (error) {
          throw new Error(`${title} is not JSON: ${error.message}`);
        }
      }
      // JSON is sent as the text that it is, so that numbers keep their digits.
      return text;
    },
  };
}

function pairs(text) {
  return text.split("\n").filter((each) => each.trim()).map((each) => {
    const at = each.indexOf("=");
    return at < 0 ? { name: each.trim(), value: null } : { name: each.slice(0, at).trim(), value: each.slice(at + 1) };
  });
}
