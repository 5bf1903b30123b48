// One topic: what it does, its partitions, its configuration, and changes.

import { api, get } from "../api.js";
import { action, toolbar } from "../actions.js";
import { Chart } from "../chart.js";
import { fill, h } from "../dom.js";
import { figuresOf, rangeChoice } from "../figures.js";
import { bytes, compact, duration, number, plural, rate } from "../format.js";
import { badge, card, equivalent, facts, figure, link, marked, problem, settled, shell, snippet, tabs, to } from "../parts.js";
import { Table } from "../table.js";
import { showRecords } from "./records.js";
import { addPartitions, changeKey, deleteTopic, resetKey, truncateTopic } from "./topic-changes.js";

const TABS = [["", "Overview"], ["records", "Records"], ["partitions", "Partitions"], ["configuration", "Configuration"]];
const SCHEMA = /^dragoman\.value\./;

export async function showTopic(place, context) {
  const { parts, state, signal } = context;
  const [name, view = ""] = parts;
  const path = api("topics", name);
  const content = h("div", {});
  const actions = h("div", {});
  const head = [h("p", { class: "crumb" }, link("#/topics", "Topics")),
    h("div", { class: "heading" }, h("h1", {}, name), actions),
    tabs(to("topics", name), TABS, view)];
  if (view === "records") return showRecords(place, head, name, context);
  fill(place, head, content);
  const made = { "": Overview, partitions: Partitions, configuration: Configuration }[view];
  if (!made) {
    fill(content, h("p", {}, "A topic has no such view."));
    return { title: name };
  }
  const drawn = new made(name, state, signal, refresh);
  fill(content, drawn.element);
  place.append(equivalent(drawn.commands(name, state), drawn.requests(`${state.server}/${path}`)));
  let topic = null;
  async function refresh() {
    topic = await wholeTopic(name, signal);
    if (!actions.firstChild) {
      const why = topic.internal ? "The topic is internal to the broker." : undefined;
      fill(actions, toolbar(state,
        action(state, "Add partitions", () => addPartitions(state, topic, refresh), { why }),
        action(state, "Truncate", () => truncateTopic(state, topic, refresh), { why, isDangerous: true }),
        action(state, "Delete", () => deleteTopic(state, topic), { why, isDangerous: true })));
    }
    await drawn.draw(topic);
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
const records = (topic) => sum(topic.partitions.map((each) => (each.high_watermark ?? 0) - (each.log_start_offset ?? 0)));

// ---- overview

class Overview {
  constructor(name, state, signal) {
    this.name = name;
    this.state = state;
    this.signal = signal;
    this.range = "-1h";
    const range = rangeChoice((value) => {
      this.range = value;
      this.drawCharts().catch(() => {});
    });
    this.figures = h("div", { class: "figures" });
    this.in = new Chart("Records written, by protocol", rate(compact));
    this.out = new Chart("Records read, by protocol", rate(compact));
    this.bytes = new Chart("Bytes", rate(bytes), 1024);
    this.size = new Chart("Size", bytes, 1024);
    this.note = h("p", { class: "muted", hidden: true });
    this.groups = new Table([
      { name: "group", title: "Group", of: (row) => row.group, show: (text) => link(to("groups", text), text) },
      { name: "protocol", title: "Protocol", of: (row) => row.protocol, show: (text) => badge(text || "none") },
      { name: "members", title: "Members", of: (row) => row.members, isNumber: true, show: number },
      { name: "lag", title: "Lag of all its topics", of: (row) => row.lag_records, isNumber: true, show: compact },
    ], { label: "Groups that read the topic", key: (row) => row.group, empty: "No group has committed offsets in this topic." });
    this.about = h("div", {});
    this.table = h("div", {});
    this.element = h("div", {}, this.figures,
      h("section", { class: "card" }, h("div", { class: "heading" }, h("h2", {}, "Traffic"), h("label", { class: "inline" }, "Charts of", range)), this.note,
        h("div", { class: "charts" }, this.in.element, this.out.element, this.bytes.element, this.size.element)),
      card("Groups", this.groups.element), this.about, card("The same topic as a table", this.table));
  }

  commands(name, state) {
    return [`dragoman topic describe ${shell(name)} --server ${state.server}`, `dragoman group list --lag --server ${state.server}`];
  }

  requests(path) {
    return [`GET ${path}`, `POST ${this.state.server}/api/v1/figures/query {"topics": [${JSON.stringify(this.name)}]}`];
  }

  async draw(topic) {
    fill(this.figures,
      figure("Partitions", number(topic.partitions.length), `of ${plural(topic.partitions[0].replicas.length, "replica")}`),
      figure("Records", compact(records(topic)), "at most"),
      figure("Size", bytes(sum(topic.partitions.map((each) => each.size_bytes))), "of one replica"),
      figure("Under-replicated", number(topic.partitions.filter((each) => each.in_sync.length < each.replicas.length).length), "partitions"));
    const schema = topic.config.filter((each) => SCHEMA.test(each.name) && each.value);
    fill(this.about, card("About", facts([
      ["Id", h("code", {}, topic.topic_id)],
      ["Kind", topic.internal ? "internal to the broker" : "of clients"],
      topic.hidden_from.length ? ["Hidden from", `${topic.hidden_from.join(", ")}: their clients cannot name it`] : null,
      ["Schema", schema.length ? "pinned in the configuration" : "none is pinned; values are shown as they look"],
    ]), schema.map((each) => snippet(each.name, pretty(each.value)))));
    if (!this.table.firstChild) fill(this.table, tableSamples(topic, this.state));
    await Promise.all([this.drawCharts(), this.drawGroups()]);
  }

  async drawCharts() {
    const names = ["topic_records_in_per_second", "topic_records_out_per_second", "topic_bytes_in_per_second", "topic_bytes_out_per_second", "topic_log_bytes"];
    const { value: found, error } = await settled(figuresOf({ names, topics: [this.name], from: this.range }, this.signal));
    this.note.hidden = Boolean(found?.series.length);
    this.note.textContent = error ? error.message
      : found.leftOut.length ? "The history has no series for this topic: it keeps those of the busiest 500, and combines the rest."
        : "No figures of this topic in this time: nothing was written to or read from it, or it is new.";
    if (!found) return;
    const times = found.times;
    this.in.draw(times, found.by("topic_records_in_per_second", "protocol"));
    this.out.draw(times, found.by("topic_records_out_per_second", "protocol"));
    this.bytes.draw(times, [found.sum("topic_bytes_in_per_second", "in"), found.sum("topic_bytes_out_per_second", "out")]);
    this.size.draw(times, [found.sum("topic_log_bytes", "size")]);
  }

  async drawGroups() {
    const { value } = await settled(get("lists/group-usage", this.signal));
    if (value) this.groups.show(value.items.filter((each) => each.topics.includes(this.name)));
  }
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function tableSamples(topic, state) {
  const bootstrap = state.bootstrap || "127.0.0.1:9092";
  const named = /^\w+$/.test(topic.name) ? topic.name : `\`${topic.name}\``;
  const decode = decoder(topic);
  const lines = (...all) => all.filter(Boolean).join("\n");
  const source = (read) => [`    spark.${read}.format("dragoman")`, `    .option("kafka.bootstrap.servers", "${bootstrap}")`,
    `    .option("subscribe", ${JSON.stringify(topic.name)})`, decode ? `    .option("decode", "${decode}")` : null, "    .load()"];
  return [
    h("p", { class: "muted" }, "Every topic is a table with the columns key, value, topic, partition, offset, timestamp and timestampType."),
    snippet("SQL on the command line", `dragoman sql ${decode ? `--decode ${decode} ` : ""}-b ${bootstrap} ${shell(`select key, count(*) from ${named} group by key`)}`),
    snippet("Spark, a batch", lines("rows = (", ...source("read"), ")",
      decode ? "rows.select(\"value.*\", \"offset\").show()" : 'rows.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "offset").show()')),
    snippet("Spark, a stream", lines("(", ...source("readStream"), '    .writeStream.format("console")',
      '    .option("checkpointLocation", "/tmp/checkpoint")', "    .start()", ")")),
  ];
}

/** How Spark decodes the values, by the schema that is pinned; empty: none is. */
function decoder(topic) {
  const schema = topic.config.find((each) => SCHEMA.test(each.name))?.value;
  if (!schema) return "";
  return schema.startsWith('{"avro"') ? "avro" : schema.startsWith('{"protobuf"') ? "protobuf" : "json";
}

// ---- partitions

class Partitions {
  constructor() {
    this.table = new Table([
      { name: "partition", title: "Partition", of: (row) => row.partition, isNumber: true },
      { name: "leader", title: "Leader", of: (row) => row.leader, isNumber: true, show: (leader) => (leader === null ? badge("none", "bad") : leader) },
      { name: "epoch", title: "Epoch", of: (row) => row.leader_epoch, isNumber: true, help: "Grows with each new leader" },
      { name: "replicas", title: "Replicas", of: (row) => row.replicas.join(", ") },
      { name: "in_sync", title: "In sync", of: (row) => row.in_sync.join(", "), show: (text, row) => (row.in_sync.length < row.replicas.length ? badge(text || "none", "warn") : text) },
      { name: "start", title: "First offset", of: (row) => row.log_start_offset, isNumber: true, show: number },
      { name: "end", title: "End", of: (row) => row.high_watermark, isNumber: true, show: number, help: "The offset after the last committed record" },
      { name: "records", title: "Records", of: (row) => (row.high_watermark === null ? null : row.high_watermark - row.log_start_offset), isNumber: true, show: number, help: "At most" },
      { name: "size", title: "Size", of: (row) => row.size_bytes, isNumber: true, show: bytes },
    ], { label: "Partitions", key: (row) => row.partition });
    this.element = this.table.element;
  }

  commands(name, state) {
    return `dragoman topic describe ${shell(name)} --server ${state.server}`;
  }

  requests(path) {
    return `GET ${path}`;
  }

  draw(topic) {
    this.table.show(topic.partitions);
  }
}

// ---- configuration

class Configuration {
  constructor(name, state, signal, refresh) {
    this.signal = signal;
    this.keys = new Map();
    const own = (row) => row.source === "topic";
    this.table = new Table([
      { name: "name", title: "Key", of: (row) => row.name, show: (text, row) => h("div", {}, h("code", {}, text), h("small", { class: "muted block" }, marked(row.meaning))) },
      { name: "value", title: "Value", of: (row) => row.value, show: (text, row) => [h("span", { class: "mono" }, text === "" ? "(empty)" : text), readable(row)] },
      { name: "source", title: "Origin", of: (row) => row.source, show: (text, row) => [badge(text.replaceAll("_", " "), own(row) ? "good" : "plain"), row.effective ? "" : [" ", badge("no effect", "plain")]] },
      state.isReadOnly ? null : { name: "change", title: "Action", isPlain: true, of: () => null, show: (_, row) => h("div", { class: "row-actions" },
        action(state, "Change", () => changeKey(state, name, row, this.keys.get(row.name), refresh), { label: `Change ${row.name}` }),
        own(row) ? action(state, "Reset", () => resetKey(state, name, row, refresh), { label: `Reset ${row.name}` }) : null) },
    ].filter(Boolean), { search: (row) => `${row.name} ${row.value} ${row.meaning}`, placeholder: "Filter keys", label: "Configuration", key: (row) => row.name,
      empty: "You may not see the configuration: the right describe_configs on the topic is missing." });
    const onlyOwn = h("input", { type: "checkbox", onchange: () => this.draw(this.topic) });
    this.table.element.querySelector(".bar").append(h("label", { class: "inline" }, onlyOwn, "Only what the topic sets"));
    this.onlyOwn = onlyOwn;
    this.said = h("div", {});
    this.element = h("div", {}, this.said, this.table.element);
  }

  commands(name, state) {
    return [`dragoman topic describe ${shell(name)} --server ${state.server}`, `dragoman topic alter ${shell(name)} --set retention.ms=86400000 --dry-run --server ${state.server}`];
  }

  requests(path) {
    return [`GET ${path}/config`, `PATCH ${path}?validate_only=true`];
  }

  async draw(topic) {
    this.topic = topic;
    if (!this.keys.size) {
      const { value, error } = await settled(get(api("topic-keys"), this.signal));
      fill(this.said, error ? problem(error) : null);
      this.keys = new Map((value?.items ?? []).map((each) => [each.name, each]));
    }
    this.table.show(topic.config
      .filter((each) => !this.onlyOwn.checked || each.source === "topic")
      .map((each) => ({ ...each, meaning: this.keys.get(each.name)?.meaning ?? "" })));
  }
}

/** A large number once more as people say it. */
function readable(row) {
  if (!/^\d{4,}$/.test(row.value)) return "";
  const value = Number(row.value);
  if (value >= 2 ** 53) return h("small", { class: "muted" }, " no limit");
  const shown = row.name.endsWith(".ms") ? duration(value / 1000) : row.name.endsWith("bytes") ? bytes(value) : null;
  return shown ? h("small", { class: "muted" }, ` ${shown}`) : "";
}
