// Bytes of records for people: JSON in colours, text, and hexadecimal digits. All are text nodes.

import { h } from "../dom.js";

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|[{}[\],:]/g;
// Beyond so many characters, colours cost more than they help.
const COLOURED_MAX = 100_000;
const ROW_BYTES = 16;
const HEX_MAX = 16 << 10;

/** JSON text with indentation; numbers keep all their digits. */
export function pretty(text) {
  let out = "";
  let indent = 0;
  const line = () => `\n${"  ".repeat(Math.min(indent, 40))}`;
  const tokens = text.match(TOKEN) ?? [];
  tokens.forEach((token, index) => {
    const before = tokens[index - 1];
    if (token === "}" || token === "]") {
      indent -= 1;
      if (before !== "{" && before !== "[") out += line();
      out += token;
    } else {
      if ((before === "{" || before === "[" || before === ",") && index) out += line();
      out += token === ":" ? ": " : token;
      if (token === "{" || token === "[") indent += 1;
    }
  });
  return out;
}

/** The same of a text that may be JSON. */
export function indented(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  return pretty(text);
}

/** JSON text with a class for each kind of token. */
export function coloured(text) {
  if (text.length > COLOURED_MAX) return [text];
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    if (match.index > end) parts.push(text.slice(end, match.index));
    end = match.index + match[0].length;
    const kind = kindOf(match[0], text[end]);
    parts.push(kind ? h("span", { class: kind }, match[0]) : match[0]);
  }
  parts.push(text.slice(end));
  return parts;
}

function kindOf(token, next) {
  if (token[0] === '"') return next === ":" ? "json-name" : "json-text";
  if (token === "true" || token === "false" || token === "null") return "json-word";
  return /[-\d]/.test(token[0]) ? "json-number" : null;
}

export const isJson = (shown) => shown.form !== "utf-8" && shown.form !== "hex";

export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
}

/** Offsets, digits and printable characters, as `hexdump -C` writes them. */
export function hexadecimal(bytes) {
  const rows = [];
  const shown = bytes.subarray(0, HEX_MAX);
  for (let at = 0; at < shown.length; at += ROW_BYTES) {
    const row = [...shown.subarray(at, at + ROW_BYTES)];
    const digits = row.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const text = row.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    rows.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(ROW_BYTES * 3)} ${text}`);
  }
  if (bytes.length > shown.length) rows.push("…");
  return rows.join("\n");
}

/** A key or value in one line of a table. */
export function preview(shown) {
  if (shown === null) return h("span", { class: "badge plain" }, "null");
  const text = shown.text.length > 240 ? `${shown.text.slice(0, 240)}…` : shown.text;
  const note = shown.form === "utf-8" || shown.form === "json" ? null : h("span", { class: "value-form" }, shown.form);
  if (!shown.size) return h("span", { class: "muted" }, "empty");
  return [note, h("span", { class: "mono" }, isJson(shown) ? coloured(text) : text)];
}
