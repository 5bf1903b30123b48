// Move the committed offsets of a group: choose a place, see the difference, apply.

import { api, post, query } from "../api.js";
import { change, difference, field } from "../actions.js";
import { fill, h } from "../dom.js";
import { number, plural } from "../format.js";
import { shell } from "../parts.js";

// Places by their name: what is typed, and how the API writes it.
const PLACES = [
  ["earliest", "Earliest", null, () => ({ to: "earliest" })],
  ["latest", "Latest", null, () => ({ to: "latest" })],
  ["time", "A time", ["@-15m", "@-15m, @-1d, milliseconds after @, or 2026-11-15T10:00:00Z"], (text) => ({ to: text })],
  ["last", "Last N records", ["100", "of each partition"], (text) => ({ to: `-${whole(text)}` })],
  ["offset", "An offset", ["0", "the same in each partition"], (text) => ({ to: whole(text) })],
  ["shift", "Shift by N", ["-10", "records from the committed offset"], (text) => ({ to: `shift:${text.trim()}` })],
  ["each", "Each partition", ["", "topic partition offset, one a line"], (text) => ({ offsets: rows(text) })],
  ["file", "From a file", ["", "CSV or JSON of topic, partition and offset"], (text) => ({ offsets: rows(text) })],
];

export function resetGroup(state, name, group, onDone) {
  const topics = [...new Set(group.offsets.map((each) => each.topic))].sort();
  let chosen = PLACES[0];
  const input = h("input", { autocomplete: "off", spellcheck: "false" });
  const area = h("textarea", { spellcheck: "false" });
  const file = h("input", { type: "file", accept: ".csv,.json,.txt", onchange: async () => { area.value = (await file.files[0]?.text()) ?? ""; } });
  const value = h("div", {});
  const draw = () => {
    const [key, title, of] = chosen;
    if (!of) fill(value);
    else if (key === "each" || key === "file") {
      if (key === "each") area.value = group.offsets.map((each) => `${each.topic} ${each.partition} ${each.committed_offset}`).join("\n");
      fill(value, key === "file" ? field("File", file) : null, field(of[1], area));
    } else {
      input.value = of[0];
      fill(value, field(title, input, of[1]));
    }
    which.hidden = key === "each" || key === "file";
  };
  const boxes = topics.map((each) => h("input", { type: "checkbox", value: each, checked: true }));
  const other = h("input", { autocomplete: "off", placeholder: "such as orders, payments" });
  const which = h("fieldset", {}, h("legend", {}, "Topics"),
    h("div", { class: "choices" }, boxes.map((box, index) => h("label", {}, box, topics[index]))),
    field("Topics without committed offsets", other, "all their partitions"));
  const wanted = () => {
    const found = chosen[3](chosen[0] === "each" || chosen[0] === "file" ? area.value : input.value);
    if (found.offsets) return found;
    const named = [...boxes.filter((each) => each.checked).map((each) => each.value), ...other.value.split(",").map((each) => each.trim()).filter(Boolean)];
    if (!named.length) throw new Error("choose a topic");
    // Without names: exactly the partitions with a committed offset.
    const isAll = !other.value.trim() && boxes.every((each) => each.checked);
    return isAll ? found : { ...found, topics: named };
  };
  const path = api("groups", name, "reset");
  change({
    title: `Reset offsets of ${name}`,
    fields: [
      h("fieldset", { onchange: (event) => { if (event.target.name === "place") { chosen = PLACES.find(([key]) => key === event.target.value); draw(); } } },
        h("legend", {}, "Continue at"),
        h("div", { class: "choices" }, PLACES.map(([key, title], index) => h("label", {}, h("input", { type: "radio", name: "place", value: key, checked: index === 0 }), title)))),
      value, which,
    ],
    wanted,
    check: async (asked) => {
      const found = await post(`${path}${query({ validate_only: true })}`, asked);
      const moved = found.items.filter((each) => each.before !== each.after);
      if (!moved.length) return h("p", {}, "Nothing changes: the group is there already.");
      return [summary(moved, found.items.length),
        difference(["Topic", "Partition", "Now", "Afterwards", "Records"], found.items.map((each) => [each.topic, each.partition,
          each.before === null ? "none" : h(each.before === each.after ? "span" : "del", {}, number(each.before)),
          each.before === each.after ? "the same" : h("ins", {}, number(each.after)), signed(each)]))];
    },
    apply: async (asked) => {
      const found = await post(path, asked);
      return `${plural(found.items.length, "offset")} of ${name} ${found.items.length === 1 ? "is" : "are"} set.`;
    },
    command: (asked) => asked.offsets
      ? `dragoman group reset ${shell(name)} --to file:offsets.csv --yes --server ${state.server}`
      : `dragoman group reset ${shell(name)} --to ${shell(String(asked.to))}${(asked.topics ?? []).map((each) => ` --topic ${shell(each)}`).join("")} --yes --server ${state.server}`,
    verb: "Reset",
    isDangerous: true,
    onDone,
  });
}

function summary(moved, count) {
  const back = moved.reduce((all, each) => all + Math.max(0, (each.before ?? each.after) - each.after), 0);
  const forth = moved.reduce((all, each) => all + Math.max(0, each.after - (each.before ?? each.after)), 0);
  return h("p", {}, h("b", {}, `${moved.length} of ${plural(count, "partition")} ${moved.length === 1 ? "changes" : "change"}. `),
    back ? `At most ${plural(back, "record")} ${back === 1 ? "is" : "are"} read again. ` : "", forth ? `At most ${plural(forth, "record")} ${forth === 1 ? "is" : "are"} skipped.` : "");
}

function signed(each) {
  if (each.before === null || each.before === each.after) return "";
  const by = each.after - each.before;
  return by < 0 ? `${number(-by)} again` : `${number(by)} skipped`;
}

function whole(text) {
  if (!/^\d+$/.test(text.trim())) throw new Error(`expected a whole number, got ${text}`);
  return Number(text);
}

/** Offsets in a JSON array, or `topic partition offset` a line, separated by commas or blanks. */
function rows(text) {
  if (text.trimStart().startsWith("[")) {
    return JSON.parse(text).map(({ topic, partition, offset }) => ({ topic, partition, offset }));
  }
  const found = [];
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const [topic, partition, offset, ...more] = line.split(/\s*[,;\t ]\s*/);
    if (topic === "topic" && partition === "partition") continue;
    if (more.length || !/^\d+$/.test(partition ?? "") || !/^\d+$/.test(offset ?? "")) throw new Error(`expected topic, partition and offset, got ${line}`);
    found.push({ topic, partition: Number(partition), offset: Number(offset) });
  }
  if (!found.length) throw new Error("there are no offsets");
  return found;
}
