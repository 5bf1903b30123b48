// What the cluster is doing, and what wants attention.

import { get } from "../api.js";
import { Chart } from "../chart.js";
import { fill, h } from "../dom.js";
import { figuresOf, newestOf, rangeChoice } from "../figures.js";
import { NOTHING, bytes, compact, duration, isMissing, number, plural, rate } from "../format.js";
import { badge, card, equivalent, facts, figure, link, problem, settled, to } from "../parts.js";
import { Table } from "../table.js";

const KINDS = { ok: "good", warning: "warn", failed: "bad" };
const TRAFFIC = ["bytes_in_per_second", "bytes_out_per_second", "records_in_per_second", "records_out_per_second"];
const NOW = [...TRAFFIC, "requests_per_second", "request_errors_per_second", "topic_bytes_in_per_second", "topic_bytes_out_per_second",
  "topic_records_in_per_second", "topic_log_bytes", "group_lag_records", "group_lag_seconds", "connections"];
const OF_NODES = ["cpu_cores", "resident_memory_bytes", "disk_free_bytes", "loop_lag_p99_seconds", "journal_sync_p99_seconds"];
const BUSIEST = 8;
const SHOWN_MAX = 30;
const NO_FIGURES = "No figures yet: nodes take a sample every 15 seconds.";

// What to do about a check of a node that is not ok, by its name.
const REMEDIES = {
  disk: "Free or add disk space, or shorten the retention of large topics.",
  journal: "The disk is slow or failing: see its health and its other users. A failed sync needs a new start of the node.",
  quorum: "Start the nodes that are down: a majority of the voters has to be alive.",
  listeners: "Another program uses the port: end it, or choose another with --listen.",
  registration: "Restart the node when the others have it registered; see its log.",
  replication: "Start the nodes that are down, and see Cluster for the partitions.",
  damage: "dragoman log verify finds it; replicas of other nodes restore it: dragoman log repair.",
  descriptors: "Raise the limit of open files (ulimit -n, LimitNOFILE), or close idle connections.",
  memory: "Raise memory.budget.bytes, or lower the bytes that clients fetch and send at once.",
  certificates: "Renew the files: the node takes them without a restart.",
  clock: "Synchronise the clock of the machine (chrony, ntpd).",
};

export async function show(place, { state, signal }) {
  const drawn = new Overview();
  const range = rangeChoice((value) => {
    drawn.range = value;
    drawn.refresh(signal).catch(() => {});
  });
  fill(place,
    h("div", { class: "heading" }, h("h1", {}, "Overview"), h("label", { class: "inline" }, "Charts of", range)),
    drawn.element,
    equivalent(
      [`dragoman top --server ${state.server}`, `dragoman cluster status --server ${state.server}`],
      [`GET ${state.server}/api/v1/cluster`, `POST ${state.server}/api/v1/figures/query`]));
  await drawn.refresh(signal);
  return { refresh: () => drawn.refresh(signal) };
}

class Overview {
  constructor() {
    this.range = "-1h";
    this.figures = h("div", { class: "figures" });
    this.attention = h("div", {});
    this.bytes = new Chart("Bytes of clients", rate(bytes), 1024);
    this.records = new Chart("Records of clients", rate(compact));
    this.protocols = new Table([
      { name: "protocol", title: "Protocol", of: (row) => row.name },
      { name: "connections", title: "Connections", of: (row) => row.connections, isNumber: true, show: number },
      { name: "requests", title: "Requests/s", of: (row) => row.requests, isNumber: true, show: compact },
      { name: "errors", title: "Errors/s", of: (row) => row.errors, isNumber: true, show: (value) => (value ? badge(compact(value), "warn") : compact(value)) },
      { name: "in", title: "In", of: (row) => row.in, isNumber: true, show: rate(bytes) },
      { name: "out", title: "Out", of: (row) => row.out, isNumber: true, show: rate(bytes) },
    ], { label: "Protocols in use", key: (row) => row.name, order: { name: "requests", isDown: true }, empty: NO_FIGURES });
    this.nodes = new Table([
      { name: "node", title: "Node", of: (row) => row.id, show: (id, row) => [`node ${id} `, row.isLeader ? badge("leads the metadata") : ""] },
      { name: "alive", title: "State", of: (row) => (row.alive ? "alive" : "not alive"), show: (text, row) => badge(text, row.alive ? "good" : "bad") },
      { name: "leads", title: "Leads", of: (row) => row.leads, isNumber: true, show: number, help: "Partitions that it leads" },
      { name: "cpu", title: "CPU", of: (row) => row.cpu, isNumber: true, show: (value) => (isMissing(value) ? NOTHING : `${Math.round(value * 100)} %`), help: "100 % is a core" },
      { name: "memory", title: "Memory", of: (row) => row.memory, isNumber: true, show: bytes },
      { name: "disk", title: "Disk free", of: (row) => row.disk, isNumber: true, show: bytes },
      { name: "loop", title: "Loop lag", of: (row) => row.loop, isNumber: true, show: duration, help: "How late the event loop runs, 99th percentile" },
      { name: "sync", title: "Journal sync", of: (row) => row.sync, isNumber: true, show: duration, help: "99th percentile" },
    ], { label: "Nodes", key: (row) => row.id });
    this.topics = h("div", { class: "bars" });
    this.groups = h("div", { class: "bars" });
    this.health = h("div", {});
    this.element = h("div", {},
      this.figures,
      card("What wants attention", this.attention),
      h("section", { class: "card" }, h("h2", {}, "Traffic"), h("div", { class: "charts" }, this.bytes.element, this.records.element)),
      card("Protocols in use", this.protocols.element),
      card("Nodes", this.nodes.element),
      h("div", { class: "cards" }, card("Busiest topics", this.topics), card("Groups with most lag", this.groups)),
      card("Health of the answering node", this.health));
  }

  async refresh(signal) {
    const [cluster, ready, now, nodes, traffic] = await Promise.all([
      settled(get("api/v1/cluster", signal)),
      settled(get("health", signal)),
      settled(newestOf(NOW, signal)),
      settled(newestOf(OF_NODES, signal, { per_node: true })),
      settled(figuresOf({ names: TRAFFIC, from: this.range }, signal)),
    ]);
    const errors = [cluster, ready, now, nodes, traffic].filter((each) => each.error);
    if (errors.length === 5) throw errors[0].error;
    this.drawFigures(cluster.value, now.value);
    this.drawAttention(cluster, ready, now.value);
    if (ready.value) this.drawHealth(ready.value);
    if (traffic.value) {
      const of = traffic.value;
      this.bytes.draw(of.times, [of.sum("bytes_in_per_second", "in"), of.sum("bytes_out_per_second", "out")]);
      this.records.draw(of.times, [of.sum("records_in_per_second", "in"), of.sum("records_out_per_second", "out")]);
    }
    if (now.value) {
      // Before the first sample nothing is known, which is not the same as nothing at all.
      const none = (text) => (now.value.series.length ? text : NO_FIGURES);
      this.protocols.options.empty = none("No client is connected.");
      this.protocols.show(protocols(now.value));
      bars(this.topics, added(now.value.newest("topic_bytes_in_per_second", "topic"), now.value.newest("topic_bytes_out_per_second", "topic")),
        "topics", rate(bytes), none("No topic is read or written at the moment."));
      bars(this.groups, now.value.newest("group_lag_records", "group"), "groups", (value) => compact(value), none("No group is behind."),
        now.value.newest("group_lag_seconds", "group"));
    }
    if (cluster.value) this.nodes.show(cluster.value.nodes.map((each) => node(each, cluster.value, nodes.value)));
  }

  drawFigures(cluster, now) {
    const total = (name) => {
      const found = [...(now?.newest(name).values() ?? [])];
      return found.length ? found.reduce((one, other) => one + other, 0) : null;
    };
    fill(this.figures,
      now ? figure("In", rate(bytes)(total("bytes_in_per_second")), rate(compact)(total("records_in_per_second")).replace("/s", " records/s")) : null,
      now ? figure("Out", rate(bytes)(total("bytes_out_per_second")), rate(compact)(total("records_out_per_second")).replace("/s", " records/s")) : null,
      cluster ? [
        figure("Topics", number(cluster.topics), plural(cluster.partitions, "partition")),
        figure("Groups", number(cluster.groups), `on node ${cluster.node_id}`),
        figure("Nodes", `${cluster.nodes.filter((each) => each.alive).length} of ${cluster.nodes.length}`, "alive"),
        figure("Under-replicated", number(cluster.under_replicated), "partitions"),
        figure("Up for", duration(cluster.uptime_ms / 1000), `node ${cluster.node_id}`),
        figure("Release", cluster.version, `feature level ${cluster.feature_level}`),
      ] : null);
  }

  drawHealth(ready) {
    fill(this.health,
      h("p", {}, badge(ready.status, { ready: "good", degraded: "warn" }[ready.status] ?? "bad")),
      facts(ready.checks.map((each) => [each.name, [badge(each.status, KINDS[each.status]), each.detail && each.detail !== "ok" ? ` ${each.detail}` : ""]])));
  }

  drawAttention(cluster, ready, now) {
    const found = ready.value ? ofChecks(ready.value) : [];
    if (cluster.value) found.push(...ofCluster(cluster.value));
    if (now?.unreachable.length) found.push(["warn", `Figures of ${now.unreachable.map((each) => `node ${each}`).join(", ")} are missing.`, "It does not answer, or is of an earlier release."]);
    fill(this.attention,
      [cluster, ready].filter((each) => each.error).map((each) => problem(each.error)),
      found.length
        ? h("ul", { class: "attention" }, first(found).map(([kind, text, remedy, address]) =>
          h("li", {}, badge(kind === "bad" ? "fault" : "warning", kind), " ", address ? link(address, text) : text, remedy ? h("small", { class: "muted" }, remedy) : null)))
        : cluster.value && ready.value ? h("p", {}, badge("nothing", "good"), " All checks pass, every partition has its leader and its replicas.") : null);
  }
}

/** Faults before warnings, as many as can be read. */
function first(found) {
  const ordered = [...found.filter(([kind]) => kind === "bad"), ...found.filter(([kind]) => kind !== "bad")];
  return ordered.length <= SHOWN_MAX ? ordered
    : [...ordered.slice(0, SHOWN_MAX), ["warn", `and ${number(ordered.length - SHOWN_MAX)} more.`, "Cluster shows all of them.", "#/cluster"]];
}

function ofChecks(ready) {
  return ready.checks
    .filter((each) => each.status !== "ok")
    .map((each) => [KINDS[each.status], `${each.name}: ${each.detail || each.status}`, REMEDIES[each.name]]);
}

function ofCluster(cluster) {
  const found = [];
  for (const each of cluster.nodes) {
    if (!each.alive) found.push(["bad", `Node ${each.node_id} does not answer.`, `Start it, or replace it: dragoman cluster remove ${each.node_id}`, "#/cluster"]);
  }
  const alike = new Map();
  for (const each of cluster.attention) {
    const [what, remedy] = wants(each);
    const key = `${each.topic}\n${what}`;
    if (!alike.has(key)) alike.set(key, { ...each, what, remedy, partitions: [] });
    alike.get(key).partitions.push(each.partition);
  }
  for (const { topic, leader, what, remedy, partitions } of alike.values()) {
    const named = `${partitions.slice(0, 8).join(", ")}${partitions.length > 8 ? " …" : ""}`;
    found.push([leader === null ? "bad" : "warn", `${topic}, ${partitions.length === 1 ? "partition" : `${number(partitions.length)} partitions,`} ${named}: ${what}.`, remedy, to("topics", topic, "partitions")]);
  }
  for (const each of cluster.few_copies) {
    found.push(["warn", `${each.topic} has ${plural(each.copies, "copy", "copies")}; the cluster's default is ${cluster.copies}.`,
      `dragoman cluster reassign --topic ${each.topic} --factor ${cluster.copies}`, to("topics", each.topic)]);
  }
  for (const each of cluster.damage) {
    found.push(["bad", `${each.topic}, partition ${each.partition}: offsets ${each.first_offset} to ${each.next_offset - 1} cannot be read.`, REMEDIES.damage, "#/cluster"]);
  }
  for (const each of cluster.journal_damage) found.push(["bad", `Acknowledged records were lost: ${each}`, REMEDIES.damage, "#/cluster"]);
  return found;
}

function wants(each) {
  if (each.leader === null) return ["no leader", "Start a node of its in-sync set; dragoman cluster unclean-elect gives up what it lacks."];
  if (each.target.length) return ["being moved", `To nodes ${each.target.join(", ")}; it ends by itself.`];
  if (each.unclean_epoch !== null) return ["an unclean election", "Committed records may be lost; readers should check."];
  return [`${each.in_sync.length} of ${each.replicas.length} replicas in sync`, "Start the nodes that are down; replicas catch up by themselves."];
}

function protocols(now) {
  const columns = {
    requests: now.newest("requests_per_second", "protocol"), errors: now.newest("request_errors_per_second", "protocol"),
    in: now.newest("bytes_in_per_second", "protocol"), out: now.newest("bytes_out_per_second", "protocol"),
    connections: now.newest("connections", "listener"),
  };
  const names = new Set(["requests", "in", "out"].flatMap((each) => [...columns[each].keys()]));
  return [...names].map((name) => ({ name, ...Object.fromEntries(Object.entries(columns).map(([key, found]) => [key, found.get(name)])) }));
}

function node(each, cluster, now) {
  const of = (name) => now?.newest(name, "node").get(each.node_id);
  return {
    id: each.node_id, alive: each.alive, leads: each.leads, isLeader: each.node_id === cluster.controller,
    cpu: of("cpu_cores"), memory: of("resident_memory_bytes"), disk: of("disk_free_bytes"),
    loop: of("loop_lag_p99_seconds"), sync: of("journal_sync_p99_seconds"),
  };
}

function added(one, other) {
  const found = new Map(one);
  for (const [key, value] of other) found.set(key, (found.get(key) ?? 0) + value);
  return found;
}

/** The largest values with a bar each. */
function bars(place, values, page, shown, empty, seconds) {
  const rows = [...values].filter(([name, value]) => value > 0 && name !== "(others)").sort((one, other) => other[1] - one[1]).slice(0, BUSIEST);
  if (!rows.length) {
    fill(place, h("p", { class: "muted" }, empty));
    return;
  }
  const most = rows[0][1];
  fill(place, rows.map(([name, value]) => {
    const bar = h("i", {});
    bar.style.width = `${Math.max(1, (100 * value) / most)}%`;
    const age = seconds?.get(name);
    return [link(to(page, name), name), h("span", { class: "track", "aria-hidden": "true" }, bar),
      h("span", { class: "value" }, shown(value), isMissing(age) ? "" : h("small", { class: "muted" }, ` ${duration(age)}`))];
  }));
}
