// One topic: what it does, its partitions, its configuration, and changes.

import { api, get, query, whole } from "../api.js";
import { Chart } from "../chart.js";
import { command, equivalent, request, shell } from "../commands.js";
import { action, toolbar } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { figuresOf } from "../figures.js";
import { NOTHING, bytes, compact, duration, number, plural, rate, sum, time } from "../format.js";
import { OverTime } from "../over-time.js";
import { badge, card, explained, facts, figure, link, marked, problem, settled, snippet, tabs, to } from "../parts.js";
import { indented } from "../records/content.js";
import { Table } from "../table.js";
import { showRecords } from "./records.js";
import { addPartitions, changeKey, createTopic, deleteTopic, resetKey, truncateTopic } from "./topic-changes.js";

const TABS = [["", "Overview"], ["records", "Records"], ["partitions", "Partitions"], ["configuration", "Configuration"], ["producers", "Producers"]];
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
  const made = { "": Overview, partitions: Partitions, configuration: Configuration, producers: Producers }[view];
  if (!made) {
    fill(content, h("p", {}, "A topic has no such view."));
    return { title: name };
  }
  const drawn = new made(name, state, signal, refresh);
  fill(content, drawn.element);
  place.append(equivalent(drawn.commands(name, state), drawn.requests(path, state)));
  let topic = null;
  async function refresh() {
    topic = await whole(path, "partitions", signal);
    if (!actions.firstChild) {
      const why = topic.internal ? "The topic is internal to the broker." : undefined;
      fill(actions, toolbar(state,
        action(state, "Add partitions", () => addPartitions(state, topic, refresh), { why }),
        action(state, "Create similar", () => createTopic(state, () => {}, topic), { why }),
        action(state, "Truncate", () => truncateTopic(state, topic, refresh), { why, isDangerous: true }),
        action(state, "Delete", () => deleteTopic(state, topic), { why, isDangerous: true })));
    }
    await drawn.draw(topic);
  }
  await refresh();
  return { refresh, title: name };
}

const records = (topic) => sum(topic.partitions.map((each) => (each.high_watermark ?? 0) - (each.log_start_offset ?? 0)));

// ---- overview

class Overview {
  constructor(name, state, signal) {
    this.name = name;
    this.state = state;
    this.signal = signal;
    this.figures = h("div", { class: "figures" });
    this.in = new Chart("Records written, by protocol", rate(compact));
    this.out = new Chart("Records read, by protocol", rate(compact));
    this.bytes = new Chart("Bytes", rate(bytes), 1024);
    this.size = new Chart("Size", bytes, 1024);
    this.traffic = new OverTime("Traffic", [this.in, this.out, this.bytes, this.size], (from) => this.drawCharts(from));
    this.groups = new Table([
      { name: "group", title: "Group", of: (row) => row.group, show: (text) => link(to("groups", text), text) },
      { name: "protocol", title: "Protocol", of: (row) => row.protocol, show: (text) => badge(text || "none") },
      { name: "members", title: "Members", of: (row) => row.members, isNumber: true, show: number },
      { name: "lag", title: "Lag of all its topics", of: (row) => row.lag_records, isNumber: true, show: compact },
    ], { label: "Groups that read the topic", key: (row) => row.group, empty: "No group has committed offsets in this topic." });
    this.about = h("div", {});
    this.table = h("div", {});
    this.element = h("div", {}, this.figures, this.traffic.element,
      card("Groups", this.groups.element), this.about, card("The same topic as a table", this.table));
  }

  commands(name, state) {
    return [command(state, "topic describe", name), command(state, "group list", "--lag")];
  }

  requests(path, state) {
    return [request(state, "GET", path), `${request(state, "POST", "api/v1/figures/query")} {"topics": [${JSON.stringify(this.name)}]}`];
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
    ]), schema.map((each) => snippet(each.name, indented(each.value)))));
    if (!this.table.firstChild) fill(this.table, tableSamples(topic, this.state));
    await Promise.all([this.traffic.refresh(), this.drawGroups()]);
  }

  async drawCharts(from) {
    const names = ["topic_records_in_per_second", "topic_records_out_per_second", "topic_bytes_in_per_second", "topic_bytes_out_per_second", "topic_log_bytes"];
    const { value: found, error } = await settled(figuresOf({ names, topics: [this.name], from }, this.signal));
    if (error) return explained(error);
    const times = found.times;
    this.in.draw(times, found.by("topic_records_in_per_second", "protocol"));
    this.out.draw(times, found.by("topic_records_out_per_second", "protocol"));
    this.bytes.draw(times, [found.sum("topic_bytes_in_per_second", "in"), found.sum("topic_bytes_out_per_second", "out")]);
    this.size.draw(times, [found.sum("topic_log_bytes", "size")]);
    if (found.series.length) return null;
    return found.leftOut.length ? "The history has no series for this topic: it keeps those of the busiest 500, and combines the rest."
      : "No figures of this topic in this time: nothing was written to or read from it, or it is new.";
  }

  async drawGroups() {
    const { value } = await settled(get("lists/group-usage", this.signal));
    if (value) this.groups.show(value.items.filter((each) => each.topics.includes(this.name)));
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
    return command(state, "topic describe", name);
  }

  requests(path, state) {
    return request(state, "GET", path);
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
    return [command(state, "topic describe", name), command(state, "topic alter", name, "--set", "retention.ms=86400000", "--dry-run")];
  }

  requests(path, state) {
    return [request(state, "GET", `${path}/config`), request(state, "PATCH", `${path}?validate_only=true`)];
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

// ---- producers

class Producers {
  constructor(name, state, signal) {
    this.name = name;
    this.signal = signal;
    this.table = new Table([
      { name: "partition", title: "Partition", of: (row) => row.partition, isNumber: true },
      { name: "id", title: "Producer id", of: (row) => row.producer_id, isNumber: true },
      { name: "epoch", title: "Epoch", of: (row) => row.epoch, isNumber: true, help: "Grows when another process takes over the transactional id" },
      { name: "sequence", title: "Last sequence number", of: (row) => row.last_sequence, isNumber: true, show: (value) => (value < 0 ? NOTHING : value) },
      { name: "last", title: "Last batch", of: (row) => row.last_ms, isNumber: true, show: (ms) => (ms < 0 ? NOTHING : time(ms)) },
      { name: "open", title: "Open transaction", of: (row) => row.open_offset, isNumber: true, help: "Readers of committed records wait at its first offset",
        show: (offset, row) => (offset === null ? "none" : badge(`since offset ${offset}, last batch ${row.last_ms < 0 ? "unknown" : `${duration((Date.now() - row.last_ms) / 1000)} ago`}`, "warn")) },
    ], { label: "Producers", order: { name: "open", isDown: true }, key: (row) => `${row.partition}@${row.producer_id}`, search: (row) => `${row.producer_id} ${row.partition}`, placeholder: "Filter producers",
      empty: "No partition remembers a producer: those that are not idempotent leave no trace." });
    this.note = h("p", { class: "muted", hidden: true });
    this.element = h("div", {}, h("p", { class: "muted" }, "Idempotent and transactional producers that the partitions remember, also after they have gone."), this.note, this.table.element);
  }

  commands(name, state) {
    return [`kafka-transactions.sh --bootstrap-server ${state.bootstrap || "HOST:PORT"} describe-producers --topic ${shell(name)} --partition 0`];
  }

  requests() {
    return [];
  }

  async draw() {
    const found = await get(`kafka/producers${query({ topic: this.name })}`, this.signal);
    this.note.hidden = !found.left_out;
    this.note.textContent = `${number(found.left_out)} more are not shown: they have no open transaction, and have written longest ago.`;
    this.table.show(found.items);
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
