// Topics, and one of them.

import { api, get } from "../api.js";
import { fill, h } from "../dom.js";
import { bytes, number } from "../format.js";
import { badge, card, equivalent, facts, figure, link, shell, tabs, to } from "../parts.js";
import { Table } from "../table.js";
import { showRecords } from "./records.js";

export async function show(place, context) {
  return context.parts.length ? showTopic(place, context) : showList(place, context);
}

async function showList(place, { state, signal }) {
  const table = new Table(
    [
      { name: "name", title: "Topic", of: (row) => row.name, show: (name, row) => [link(to("topics", name), name), row.internal ? [" ", badge("internal")] : ""] },
      { name: "partitions", title: "Partitions", of: (row) => row.partitions, isNumber: true, show: number },
      { name: "copies", title: "Replicas", of: (row) => row.replication_factor, isNumber: true, show: number },
    ],
    { search: (row) => row.name, placeholder: "Filter topics", label: "Topics", empty: "There are no topics yet." },
  );
  const internal = h("input", { type: "checkbox", onchange: () => draw() });
  table.element.querySelector(".bar").append(h("label", { class: "inline" }, internal, "Internal topics"));
  let items = [];
  const draw = () => table.show(items.filter((each) => internal.checked || !each.internal));
  fill(place, h("h1", {}, "Topics"), table.element, equivalent(`dragoman topic list --server ${state.server}`, `GET ${state.server}/api/v1/topics`));
  async function refresh() {
    items = (await get("lists/topics", signal)).items;
    draw();
  }
  await refresh();
  return { refresh };
}

async function showTopic(place, context) {
  const { parts, state, signal } = context;
  const [name, view = ""] = parts;
  const base = to("topics", name);
  const head = [h("p", {}, link("#/topics", "Topics")), h("h1", {}, name),
    tabs(base, [["", "Partitions"], ["records", "Records"], ["configuration", "Configuration"]], view)];
  if (view === "records") return showRecords(place, head, name, context);
  const content = h("div", {});
  fill(place, head, content,
    equivalent(`dragoman topic describe ${shell(name)} --server ${state.server}`, `GET ${state.server}/${api("topics", name)}`));
  async function refresh() {
    const topic = await wholeTopic(name, signal);
    fill(content, view === "configuration" ? configuration(topic) : partitions(topic));
  }
  await refresh();
  return { refresh, title: name };
}

/** A topic with all its partitions, which come a page at a time. */
async function wholeTopic(name, signal) {
  const path = api("topics", name);
  const topic = await get(path, signal);
  let next = topic.next;
  while (next) {
    const page = await get(`${path}?after=${encodeURIComponent(next)}`, signal);
    topic.partitions.push(...page.partitions);
    next = page.next;
  }
  return topic;
}

const sum = (values) => values.reduce((one, other) => one + (other ?? 0), 0);

function partitions(topic) {
  const table = new Table(
    [
      { name: "partition", title: "Partition", of: (row) => row.partition, isNumber: true },
      { name: "leader", title: "Leader", of: (row) => row.leader, isNumber: true, show: (leader) => (leader === null ? badge("none", "bad") : leader) },
      { name: "replicas", title: "Replicas", of: (row) => row.replicas.join(", ") },
      { name: "in_sync", title: "In sync", of: (row) => row.in_sync.join(", "), show: (text, row) => (row.in_sync.length < row.replicas.length ? badge(text || "none", "warn") : text) },
      { name: "start", title: "First offset", of: (row) => row.log_start_offset, isNumber: true, show: number },
      { name: "end", title: "End", of: (row) => row.high_watermark, isNumber: true, show: number, help: "The offset after the last committed record" },
      { name: "size", title: "Size", of: (row) => row.size_bytes, isNumber: true, show: bytes },
    ],
    { label: "Partitions" },
  );
  table.show(topic.partitions);
  const records = sum(topic.partitions.map((each) => (each.high_watermark ?? 0) - (each.log_start_offset ?? 0)));
  return [
    h("div", { class: "figures" },
      figure("Partitions", number(topic.partitions.length)),
      figure("Offsets", number(records), "at most as many records"),
      figure("Size", bytes(sum(topic.partitions.map((each) => each.size_bytes))), "on the answering node")),
    card("Identity", facts([["Id", h("code", {}, topic.topic_id)], topic.hidden_from.length ? ["Hidden from", topic.hidden_from.join(", ")] : null])),
    table.element,
  ];
}

function configuration(topic) {
  const table = new Table(
    [
      { name: "name", title: "Key", of: (row) => row.name, show: (text) => h("code", {}, text) },
      { name: "value", title: "Value", of: (row) => row.value, show: (text) => h("span", { class: "mono" }, text) },
      { name: "source", title: "Origin", of: (row) => row.source, show: (text) => badge(text.replaceAll("_", " "), text === "topic" ? "good" : "plain") },
      { name: "effective", title: "Effect", of: (row) => row.effective, show: (is) => (is ? "" : "none, accepted for compatibility") },
    ],
    { search: (row) => `${row.name} ${row.value}`, placeholder: "Filter keys", label: "Configuration" },
  );
  table.show(topic.config);
  return table.element;
}
