// The cluster: who leads, what is in sync, what is damaged, and changes of nodes and replicas.

import { api, get, post, query, remove } from "../api.js";
import { Chart } from "../chart.js";
import { command, equivalent, option, request } from "../commands.js";
import { Nothing, action, change, choice, difference, field, toolbar } from "../dialogs.js";
import { drawn, fill, h } from "../dom.js";
import { figuresOf, newestOf } from "../figures.js";
import { NOTHING, bytes, compact, isMissing, number, plural, sum } from "../format.js";
import { OverTime } from "../over-time.js";
import { Silent, badge, card, explained, facts, figure, link, nodeColumn, problem, settled, to } from "../parts.js";
import { Table } from "../table.js";
import { showSettings } from "./node-settings.js";
import { setting } from "./setting-change.js";

const OVER_TIME = ["in_sync_changes_per_second", "metadata_leader_changes_per_second", "under_replicated_partitions", "offline_partitions", "replica_lag_records"];

export async function show(place, context) {
  return context.parts[0] === "settings" ? showSettings(place, context) : showCluster(place, context);
}

async function showCluster(place, { state, signal }) {
  const figures = h("div", { class: "figures" });
  const said = h("div", {});
  const moving = h("div", {});
  const partitions = h("div", {});
  const damage = h("div", {});
  const settings = h("div", {});
  const listeners = h("div", {});
  let cluster = null;
  const charts = {
    sync: new Chart("Changes of in-sync sets and of the metadata's leader, a minute", compact),
    behind: new Chart("Partitions under-replicated and without a leader", compact),
    lag: new Chart("Followers behind by at most, in records", compact),
  };
  const overTime = new OverTime("Over time", charts, drawCharts);
  const nodes = new Table([
    { name: "node", title: "Node", of: (row) => row.node_id, show: (id, row) => [`node ${id} `, row.isLeader ? badge("leads the metadata") : ""] },
    { name: "state", title: "State", of: (row) => (row.alive ? "alive" : "not alive"), show: (text, row) => badge(text, row.alive ? "good" : "bad") },
    { name: "role", title: "Role", of: (row) => row.role, help: "In the quorum of the metadata" },
    { name: "rack", title: "Rack", of: (row) => row.rack || null },
    { name: "leads", title: "Leads", of: (row) => row.leads, isNumber: true, show: number, help: "Partitions that it leads" },
    { name: "replicas", title: "Replicas", of: (row) => row.replicas, isNumber: true, show: number },
    { name: "lag", title: "Behind by", of: (row) => row.lag, isNumber: true, show: (value) => (isMissing(value) ? NOTHING : `${compact(value)} ${value === 1 ? "record" : "records"}`), help: "Of the partition that it follows worst" },
    { name: "settings", title: "Settings", isPlain: true, of: () => null, show: (_, row) => link(to("cluster", "settings", String(row.node_id)), "Settings") },
    { name: "level", title: "Supports level", of: (row) => row.feature_level, isNumber: true },
    state.isReadOnly ? null : { name: "act", title: "Actions", isPlain: true, of: () => null, show: (_, row) => h("div", { class: "row-actions" },
      action(state, "Relieve", () => relieve(state, row, cluster, refresh), { help: "Other nodes take over what it leads" }),
      action(state, "Drain", () => drain(state, row, cluster, refresh), { help: "Move its replicas to other nodes" }),
      action(state, "Remove", () => removeNode(state, row, refresh), { isDangerous: true })) },
  ].filter(Boolean), { label: "Nodes", key: (row) => row.node_id });

  fill(place,
    h("div", { class: "heading" }, h("h1", {}, "Cluster"), toolbar(state,
      action(state, "Move replicas", () => move(state, refresh)),
      action(state, "Elect preferred leaders", () => elect(state, refresh)),
      action(state, "Transfer metadata", () => transfer(state, cluster, refresh)),
      action(state, "Add node", () => addNode(state, refresh)))),
    said, figures, card("Nodes", nodes.element),
    overTime.element, card("Moves in progress", moving), card("Partitions that want attention", partitions),
    card("Damage", damage), card("Settings changed at run time", settings), card("Listeners", listeners),
    equivalent([command(state, "cluster status"), command(state, "cluster reassign", "--topic", "NAME", "--nodes", "1,2,3"), command(state, "config set", "KEY=VALUE")],
      [request(state, "GET", "api/v1/cluster"), request(state, "GET", "api/v1/cluster/settings"), request(state, "GET", "api/v1/damage?node=1")]));

  async function drawCharts(from) {
    const { value: found, error } = await settled(figuresOf({ names: OVER_TIME, from }, signal));
    if (error) return explained(error);
    const perMinute = (column) => ({ ...column, values: column.values.map((each) => (isMissing(each) ? null : each * 60)) });
    charts.sync.draw(found.times, [perMinute(found.sum("in_sync_changes_per_second", "in-sync changes")), perMinute(found.sum("metadata_leader_changes_per_second", "leader changes"))]);
    charts.behind.draw(found.times, [found.sum("under_replicated_partitions", "under-replicated"), found.sum("offline_partitions", "without leader")]);
    charts.lag.draw(found.times, found.by("replica_lag_records", "follower").map((each) => ({ ...each, name: `node ${each.name}` })));
    return null;
  }

  async function refresh() {
    const [status, now, changed] = await Promise.all([
      settled(get("api/v1/cluster", signal)),
      settled(newestOf(["metadata_term", "replica_lag_records"], signal)),
      settled(get("api/v1/cluster/settings", signal)),
    ]);
    fill(said, status.error ? problem(status.error) : null);
    drawn(settings, changed, () => changed.error ? problem(changed.error) : settingsOf(state, changed.value.items, refresh));
    if (status.value) {
      cluster = status.value;
      const term = now.value ? [...now.value.newest("metadata_term", "").values()][0] : null;
      fill(figures,
        figure("Metadata led by", cluster.controller === null ? "no node" : `node ${cluster.controller}`, isMissing(term) ? null : `term ${number(term)}`),
        figure("Nodes", `${cluster.nodes.filter((each) => each.alive).length} of ${cluster.nodes.length}`, "alive"),
        figure("Partitions", number(cluster.partitions), plural(cluster.topics, "topic")),
        figure("Under-replicated", number(cluster.under_replicated)),
        figure("Without leader", number(cluster.leaderless)),
        figure("Moving", number(cluster.moving)),
        figure("Durability", cluster.durability),
        figure("Release", cluster.version, `feature level ${cluster.feature_level}`));
      charts.lag.element.hidden = cluster.nodes.length < 2;
      const lag = now.value?.newest("replica_lag_records", "follower") ?? new Map();
      nodes.show(cluster.nodes.map((each) => ({ ...each, listeners: undefined, isLeader: each.node_id === cluster.controller, lag: lag.get(String(each.node_id)) })));
      drawn(moving, cluster.attention, () => movesOf(state, cluster, refresh));
      drawn(partitions, cluster.attention, () => attentionOf(cluster));
      fill(listeners, facts(cluster.nodes.map((each) => [`Node ${each.node_id}`,
        each.listeners.length ? each.listeners.map((one) => [h("code", {}, `${one.name} ${one.advertised ?? one.bound}`), " "]) : "none is known"])));
    }
    await Promise.all([overTime.refresh(), cluster ? refreshDamage() : null]);
  }

  /** Each node knows what is damaged on its own disk. */
  async function refreshDamage() {
    const ids = cluster.nodes.filter((each) => each.alive).map((each) => each.node_id);
    const found = await Promise.all(ids.map((id) => settled(get(`api/v1/damage${query({ node: id })}`, signal))));
    drawn(damage, found, () => damageOf(found.map((each, index) => ({ ...each, node: ids[index] }))));
  }
  await refresh();
  return { refresh };
}

// ---- parts

function movesOf(state, cluster, refresh) {
  const found = cluster.attention.filter((each) => each.target.length);
  if (!found.length) return h("p", { class: "muted" }, "No replica is being moved.");
  return [h("ul", { class: "attention" }, found.map((each) => {
    const done = each.target.filter((node) => each.in_sync.includes(node)).length;
    return h("li", {}, link(to("topics", each.topic, "partitions"), `${each.topic}, partition ${each.partition}`), `: ${each.replicas.join(", ")} → ${each.target.join(", ")} `,
      h("progress", { max: each.target.length, value: done, "aria-label": `${done} of ${each.target.length} in sync` }), ` ${done} of ${each.target.length} in sync`);
  })), cluster.moving > found.length ? h("p", { class: "muted" }, `and ${number(cluster.moving - found.length)} more`) : null,
  action(state, "Cancel all moves", () => change({
    title: "Cancel all moves",
    check: async () => h("p", {}, `${plural(cluster.moving, "move")} will be undone: the replicas stay where they are now, and what was copied is deleted.`),
    apply: async () => `${plural((await repeated("moves", { cancel: true })).length, "move")} cancelled.`,
    command: () => command(state, "cluster reassign", "--cancel"),
    verb: "Cancel them", isDangerous: true, onDone: refresh,
  }), { isDangerous: true })];
}

function attentionOf(cluster) {
  const found = cluster.attention.filter((each) => !each.target.length);
  if (!found.length) return h("p", {}, badge("none", "good"), " Every partition has its leader and its replicas in sync.");
  const table = new Table([
    { name: "topic", title: "Topic", of: (row) => row.topic, show: (text) => link(to("topics", text, "partitions"), text) },
    { name: "partition", title: "Partition", of: (row) => row.partition, isNumber: true },
    { name: "leader", title: "Leader", of: (row) => row.leader, show: (leader) => (leader === null ? badge("none", "bad") : `node ${leader}`) },
    { name: "sync", title: "In sync", of: (row) => row.in_sync.join(", ") },
    { name: "replicas", title: "Replicas", of: (row) => row.replicas.join(", ") },
    { name: "unclean", title: "Unclean election", of: (row) => row.unclean_epoch, show: (epoch) => (epoch === null ? "" : badge(`epoch ${epoch}`, "warn")), help: "May have lost committed records" },
  ], { label: "Partitions that want attention" });
  table.show(found);
  return table.element;
}

/** `answers`: of each node, `value` or `error`. */
function damageOf(answers) {
  const refused = answers.find((each) => each.error?.status === 403);
  if (refused) return problem(refused.error);
  const silent = new Silent("its damage is not known.");
  silent.show(answers.filter((each) => each.error).map((each) => each.node));
  const nodes = answers.filter((each) => each.value).map((each) => each.value);
  const damaged = nodes.filter((each) => each.items.length || each.journal.length || each.quarantine.length);
  if (!damaged.length) {
    return [silent.element, nodes.length ? h("p", {}, badge("none", "good"), ` ${plural(nodes.length, "node")} can read all that was checked.`) : null];
  }
  const table = new Table([
    nodeColumn,
    { name: "topic", title: "Topic", of: (row) => row.topic, show: (text) => link(to("topics", text), text) },
    { name: "partition", title: "Partition", of: (row) => row.partition, isNumber: true },
    { name: "range", title: "Offsets that cannot be read", of: (row) => row.first_offset, show: (_, row) => `${number(row.first_offset)} to ${number(row.next_offset - 1)}` },
    { name: "path", title: "File", of: (row) => row.path, show: (text, row) => h("code", {}, `${text} at byte ${row.position}`) },
  ], { label: "Damage", empty: "No range of records is damaged." });
  table.show(damaged.flatMap((each) => each.items.map((item) => ({ ...item, node: each.node_id }))));
  return [silent.element, table.element, damaged.map(keptAside),
    h("p", { class: "muted" }, "With the node stopped, dragoman log verify lists all damage, and dragoman log repair cuts it out: other replicas then send what is missing.")];
}

const keptAside = ({ node_id: node, journal, quarantine, quarantined_bytes: size }) => [
  journal.length ? [h("h3", {}, `Lost from the journal of node ${node}`), h("ul", {}, journal.map((each) => h("li", {}, each)))] : null,
  quarantine.length ? [h("h3", {}, `Kept aside by node ${node}: ${bytes(size)}`), h("ul", {}, quarantine.map((each) => h("li", {}, h("code", {}, each.path), ` ${bytes(each.size_bytes)}`)))] : null];

function settingsOf(state, items, refresh) {
  const table = new Table([
    { name: "node", title: "Node", of: (row) => (row.node_id === null ? "all nodes" : `node ${row.node_id}`) },
    { name: "name", title: "Setting", of: (row) => row.name, show: (text) => h("code", {}, text) },
    { name: "value", title: "Value", of: (row) => row.value, show: (text) => (text === null ? badge("hidden, without effect") : h("span", { class: "mono" }, text)) },
    state.isReadOnly ? null : { name: "unset", title: "Action", isPlain: true, of: () => null, show: (_, row) => action(state, "Return to the start's value", () => setting(state, refresh, row)) },
  ].filter(Boolean), { label: "Settings changed at run time", empty: "Nodes run with the settings that they were started with." });
  table.show(items);
  return [table.element, h("p", {}, action(state, "Change a setting", () => setting(state, refresh)))];
}

// ---- changes

/** One request starts moves for a few seconds; it is repeated until none is left. */
async function repeated(path, body) {
  const done = [];
  for (;;) {
    const found = await post(api("cluster", path), body);
    done.push(...(found.items ?? []));
    if (!found.remaining) return done;
  }
}

const numbers = (text) => text.split(",").map((each) => each.trim()).filter(Boolean).map((each) => {
  if (!/^\d+$/.test(each)) throw new Error(`expected numbers of nodes such as 1,2,3, got ${text}`);
  return Number(each);
});

function move(state, refresh) {
  const topic = h("input", { required: true, autocomplete: "off" });
  const partition = h("input", { type: "number", min: 0, placeholder: "all" });
  const nodes = h("input", { required: true, placeholder: "1,2,3", autocomplete: "off" });
  const factor = h("input", { type: "number", min: 1, placeholder: "as now" });
  const throttle = h("input", { type: "number", min: 0, placeholder: "as now" });
  change({
    title: "Move replicas",
    fields: [field("Topic", topic), h("div", { class: "pair" }, field("Partition", partition), field("Replicas of each", factor)),
      field("To the nodes", nodes, "with a partition: exactly these, the first one leads"),
      field("Bytes per second that each node sends", throttle, "0: no limit")],
    wanted: () => ({ topic: topic.value, nodes: numbers(nodes.value), partition: partition.value === "" ? null : Number(partition.value),
      factor: factor.value === "" ? null : Number(factor.value), throttle: throttle.value === "" ? null : Number(throttle.value) }),
    check: async (asked) => {
      const found = await get(api("topics", asked.topic));
      const some = found.partitions.filter((each) => asked.partition === null || each.partition === asked.partition);
      if (!some.length) throw new Error("there is no such partition");
      const size = sum(some.map((each) => each.size_bytes));
      return [h("p", {}, `${plural(some.length, "partition")} of ${bytes(size)} may be copied. The cluster spreads them over the nodes; reads and writes continue meanwhile.`),
        difference(["Partition", "Replicas now", "Afterwards"], some.map((each) => [each.partition, each.replicas.join(", "), asked.partition === null && asked.nodes.length > 1 ? `some of ${asked.nodes.join(", ")}` : asked.nodes.join(", ")]))];
    },
    apply: async (asked) => `${plural((await repeated("moves", asked)).length, "move")} begun.`,
    command: (asked) => command(state, "cluster reassign", "--topic", asked.topic, option("--partition", asked.partition), "--nodes", asked.nodes.join(","), option("--factor", asked.factor), option("--throttle", asked.throttle)),
    verb: "Move", onDone: refresh,
  });
}

/** How many live nodes there are beside one. Throws when there is none. */
function othersOf(node, cluster) {
  const count = cluster.nodes.filter((each) => each.alive && each.node_id !== node.node_id).length;
  if (!count) throw new Error("there is no other live node");
  return count;
}

function drain(state, node, cluster, refresh) {
  change({
    title: `Drain node ${node.node_id}`,
    check: async () => {
      const others = othersOf(node, cluster);
      return h("p", {}, node.replicas === 1 ? "Its replica moves" : `Its ${number(node.replicas)} replicas move`, others === 1 ? " to the other live node. " : ` to the other ${number(others)} live nodes. `, "The node serves until they are there.");
    },
    apply: async () => `${plural((await repeated("moves", { drain: node.node_id })).length, "move")} begun.`,
    command: () => command(state, "cluster reassign", "--from", node.node_id),
    verb: "Drain", isDangerous: true, onDone: refresh,
  });
}

function relieve(state, node, cluster, refresh) {
  change({
    title: `Relieve node ${node.node_id}`,
    check: async () => othersOf(node, cluster) && h("p", {}, `In-sync replicas on other nodes take over the ${plural(node.leads, "partition")} that node ${node.node_id} leads. Clients follow within seconds; its replicas stay.`),
    apply: async () => (await post(api("cluster", "transfers"), { relieve: node.node_id })).detail,
    command: () => command(state, "cluster transfer", "--leaders-of", node.node_id),
    verb: "Relieve", onDone: refresh,
  });
}

function elect(state, refresh) {
  const topic = h("input", { placeholder: "all topics", autocomplete: "off" });
  change({
    title: "Elect preferred leaders",
    fields: [h("p", {}, "The first replica of each partition leads it again where it is in sync. Clients follow within seconds."), field("Topic", topic)],
    wanted: () => ({ topic: topic.value.trim() || null }),
    check: async (asked) => {
      if (asked.topic === null) return h("p", {}, "Every partition whose first replica does not lead it is elected for.");
      const found = await get(api("topics", asked.topic));
      const due = found.partitions.filter((each) => each.leader !== each.replicas[0]);
      return due.length ? difference(["Partition", "Leader now", "Afterwards"], due.map((each) => [each.partition, each.leader ?? "none", each.in_sync.includes(each.replicas[0]) ? each.replicas[0] : "the same: not in sync"])) : new Nothing(h("p", {}, "Nothing changes."));
    },
    apply: async (asked) => (await post(api("cluster", "elections"), asked)).detail,
    command: (asked) => command(state, "cluster elect", option("--topic", asked.topic)),
    verb: "Elect", onDone: refresh,
  });
}

function transfer(state, cluster, refresh) {
  const others = (cluster?.nodes ?? []).filter((each) => each.alive && each.role === "voter" && each.node_id !== cluster.controller);
  const node = choice([["-1", "any other node"], ...others.map((each) => [each.node_id, `node ${each.node_id}`])]);
  change({
    title: "Transfer the leadership of the metadata",
    fields: [field("To", node)],
    wanted: () => ({ metadata_to: Number(node.value) }),
    check: async () => h("p", {}, "Reads and writes of records continue; changes of topics and groups may wait a moment."),
    apply: async (asked) => (await post(api("cluster", "transfers"), asked)).detail,
    command: (asked) => command(state, "cluster transfer", "--metadata", option("--to", asked.metadata_to < 0 ? null : asked.metadata_to)),
    verb: "Transfer", onDone: refresh,
  });
}

function addNode(state, refresh) {
  const id = h("input", { type: "number", min: 0, required: true });
  const address = h("input", { required: true, placeholder: "10.0.0.4:7071", autocomplete: "off" });
  change({
    title: "Add a node",
    fields: [field("Number", id), field("Address for other nodes", address)],
    wanted: () => ({ node_id: Number(id.value), address: address.value.trim() }),
    check: async (asked) => h("p", {}, `Node ${asked.node_id} may join; it votes once it has caught up, and gets replicas by moves only.`),
    apply: async (asked) => (await post(api("cluster", "nodes"), asked)).detail,
    command: (asked) => command(state, "cluster add", `${asked.node_id}@${asked.address}`),
    verb: "Add", onDone: refresh,
  });
}

function removeNode(state, node, refresh) {
  change({
    title: `Remove node ${node.node_id}`,
    check: async () => h("p", {}, node.replicas
      ? `It holds ${plural(node.replicas, "replica")}. A live node has to be drained first; those of a dead one stay assigned to it until they are moved.`
      : "It holds no replicas. It does not vote any more, and may not join again unless it is added."),
    apply: async () => (await remove(api("cluster", "nodes", String(node.node_id)))).detail,
    command: () => command(state, "cluster remove", node.node_id),
    verb: "Remove", typed: `node ${node.node_id}`, isDangerous: true, onDone: refresh,
  });
}
