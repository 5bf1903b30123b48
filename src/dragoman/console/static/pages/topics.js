// The list of topics; one of them is in `topic.js`.

import { get } from "../api.js";
import { command, equivalent, request } from "../commands.js";
import { action, toolbar } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { newestOf } from "../figures.js";
import { NOTHING, bytes, compact, isMissing, number, rate } from "../format.js";
import { Silent, badge, link, settled, to } from "../parts.js";
import { Table } from "../table.js";
import { createTopic } from "./topic-changes.js";
import { showTopic } from "./topic.js";

export async function show(place, context) {
  return context.parts.length ? showTopic(place, context) : showList(place, context);
}

const RATES = ["topic_records_in_per_second", "topic_records_out_per_second", "topic_bytes_in_per_second", "topic_bytes_out_per_second"];

async function showList(place, { state, signal, search }) {
  const table = new Table(
    [
      { name: "name", title: "Topic", of: (row) => row.name, show: (name, row) => [link(to("topics", name), name), row.internal ? [" ", badge("internal")] : ""] },
      { name: "partitions", title: "Partitions", of: (row) => row.partitions, isNumber: true, show: number },
      { name: "copies", title: "Replicas", of: (row) => row.replication_factor, isNumber: true, show: number },
      { name: "records", title: "Records", of: (row) => row.records, isNumber: true, show: compact, help: "At most as many: compaction leaves gaps in the offsets" },
      { name: "size", title: "Size", of: (row) => row.size_bytes, isNumber: true, show: bytes, help: "On the disks of the leaders" },
      { name: "in", title: "In", of: (row) => row.in, isNumber: true, show: (value, row) => flow(value, row.writers), help: "Records per second, and the protocols that write" },
      { name: "out", title: "Out", of: (row) => row.out, isNumber: true, show: (value, row) => flow(value, row.readers), help: "Records per second, and the protocols that read" },
      { name: "groups", title: "Groups", of: (row) => row.groups, isNumber: true, show: number, help: "Groups with committed offsets" },
    ],
    { search: (row) => row.name, placeholder: "Filter topics", label: "Topics", key: (row) => row.name, empty: "There are no topics yet. Create one, or let a client write to it." },
  );
  const internal = h("input", { type: "checkbox", onchange: () => draw() });
  table.element.querySelector(".bar").append(h("label", { class: "inline" }, internal, "Internal topics"));
  if (search.get("filter")) table.filter(search.get("filter"));
  let items = [];
  const draw = () => table.show(items.filter((each) => internal.checked || !each.internal));
  const silent = new Silent("figures of what is led there are missing.");
  fill(place,
    h("div", { class: "heading" }, h("h1", {}, "Topics"), toolbar(state, h("a", { class: "button", href: "#/tail" }, "Live tail of several"), action(state, "Create topic", () => createTopic(state, refresh), { isMain: true }))),
    silent.element, table.element,
    equivalent([command(state, "topic list"), command(state, "topic create", "NAME", "--partitions", "3")],
      [request(state, "GET", "api/v1/usage/topics"), request(state, "POST", "api/v1/topics")]));
  async function refresh() {
    const [found, rates] = await Promise.all([get("lists/topic-usage", signal), settled(newestOf(RATES, signal))]);
    items = withRates(found.items, rates.value);
    silent.show(found.unreachable);
    draw();
  }
  await refresh();
  return { refresh };
}

/** Topics with their rates. Those that the history combines have none. */
function withRates(items, rates) {
  const of = new Map();
  for (const each of rates?.series ?? []) {
    const value = each.values.findLast((one) => !isMissing(one));
    if (!value) continue;
    const found = of.get(each.labels.topic) ?? { in: 0, out: 0, writers: [], readers: [] };
    if (each.name === "topic_records_in_per_second") found.in += value;
    if (each.name === "topic_records_out_per_second") found.out += value;
    if (each.name === "topic_bytes_in_per_second") found.writers.push(each.labels.protocol);
    if (each.name === "topic_bytes_out_per_second") found.readers.push(each.labels.protocol);
    of.set(each.labels.topic, found);
  }
  const isWhole = rates && !rates.leftOut.some((each) => each.budget === "topic traffic");
  const none = isWhole ? { in: 0, out: 0, writers: [], readers: [] } : { in: null, out: null, writers: [], readers: [] };
  return items.map((each) => ({ ...each, ...(of.get(each.name) ?? none) }));
}

function flow(value, protocols) {
  if (isMissing(value)) return NOTHING;
  return [rate(compact)(value), protocols.length ? h("small", { class: "muted" }, ` ${protocols.join(", ")}`) : ""];
}
