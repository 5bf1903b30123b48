// Writing a record, over the node's API.

import { api, post } from "../api.js";
import { openDialog } from "../dialog.js";
import { fill, h } from "../dom.js";
import { problem } from "../parts.js";

const FORMS = [["text", "Text"], ["json", "JSON"], ["base64", "Base64"], ["null", "null"]];

export function askRecord(topic, onWritten) {
  const key = field("Key", "null", h("input", { autocomplete: "off", class: "mono" }));
  const value = field("Value", "json", h("textarea", { rows: 8, class: "mono", spellcheck: "false" }));
  const headers = h("textarea", { rows: 2, class: "mono", spellcheck: "false", placeholder: "name=value, one in a line" });
  const partition = h("input", { inputmode: "numeric", pattern: "[0-9]*", placeholder: "by the key" });
  const said = h("div", {});
  const dialog = h("dialog", { "aria-label": "Produce a record" });
  const send = async () => {
    try {
      const record = { key: key.content(), value: value.content(), headers: pairs(headers.value) };
      if (partition.value.trim()) record.partition = Number(partition.value);
      const { items: [written] } = await post(api("topics", topic, "records"), { records: [record] });
      if (written.problem) throw new Error(written.problem);
      dialog.close();
      onWritten(written);
    } catch (error) {
      fill(said, problem(error));
    }
  };
  fill(dialog, h("form", { class: "produce", onsubmit: (event) => { event.preventDefault(); send(); } },
    h("h2", {}, "Produce a record"), key.element, value.element,
    h("label", {}, "Headers", headers), h("label", {}, "Partition", partition), said,
    h("div", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
      h("button", { class: "primary" }, "Produce"))));
  openDialog(dialog);
}

function field(title, first, input) {
  const form = h("select", { "aria-label": `${title} is`, onchange: () => adapt() }, FORMS.map(([name, text]) => h("option", { value: name }, text)));
  form.value = first;
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
