// What the cluster is doing, and what wants attention.

import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { duration, number, plural } from "../format.js";
import { badge, card, equivalent, facts, figure, link, to } from "../parts.js";

const KINDS = { ok: "good", warning: "warn", failed: "bad" };

export async function show(place, { state, signal }) {
  const figures = h("div", { class: "figures" });
  const attention = h("div", {});
  const health = h("div", {});
  const nodes = h("div", {});
  const title = h("h1", {}, "Overview");
  fill(place, title, figures, h("div", { class: "cards" }, card("What wants attention", attention), card("Health of the answering node", health)), card("Nodes", nodes),
    equivalent(`dragoman cluster status --server ${state.server}`, `GET ${state.server}/api/v1/cluster`));

  async function refresh() {
    const [cluster, ready] = await Promise.all([get("api/v1/cluster", signal), get("health", signal)]);
    fill(figures,
      figure("Topics", number(cluster.topics)),
      figure("Partitions", number(cluster.partitions)),
      figure("Groups", number(cluster.groups)),
      figure("Nodes", `${cluster.nodes.filter((each) => each.alive).length} of ${cluster.nodes.length}`, "alive"),
      figure("Under-replicated", number(cluster.under_replicated), "partitions"),
      figure("Without leader", number(cluster.leaderless), "partitions"),
      figure("Up for", duration(cluster.uptime_ms / 1000), `node ${cluster.node_id}`),
      figure("Release", cluster.version, `feature level ${cluster.feature_level}`));
    drawAttention(attention, cluster, ready);
    fill(health,
      h("p", {}, badge(ready.status, { ready: "good", degraded: "warn" }[ready.status] ?? "bad")),
      facts(ready.checks.map((each) => [each.name, [badge(each.status, KINDS[each.status]), each.detail && each.detail !== "ok" ? ` ${each.detail}` : ""]])));
    fill(nodes, cluster.nodes.map((each) => node(each, cluster.controller)));
  }
  await refresh();
  return { refresh };
}

function node(each, controller) {
  return h("div", { class: "card" },
    h("h2", {}, `Node ${each.node_id} `, badge(each.alive ? "alive" : "not alive", each.alive ? "good" : "bad"),
      each.node_id === controller ? [" ", badge("leads the metadata")] : null),
    facts([
      ["Role", each.role],
      each.rack ? ["Rack", each.rack] : null,
      ["Replicas", `${number(each.replicas)}, leads ${number(each.leads)}`],
      ["Listeners", h("span", {}, each.listeners.map((one) => [h("code", {}, `${one.name} ${one.advertised ?? one.bound}`), " "]))],
    ]));
}

function drawAttention(place, cluster, ready) {
  const found = [];
  for (const each of ready.checks) {
    if (each.status !== "ok") found.push([KINDS[each.status], `${each.name}: ${each.detail}`, null]);
  }
  for (const each of cluster.nodes) {
    if (!each.alive) found.push(["bad", `Node ${each.node_id} does not answer.`, null]);
  }
  for (const each of cluster.attention) {
    const what = each.leader === null
      ? "has no leader"
      : each.target.length ? "is being moved" : each.unclean_epoch !== null ? "had an unclean election"
        : `has ${each.in_sync.length} of ${each.replicas.length} replicas in sync`;
    found.push([each.leader === null ? "bad" : "warn", `${each.topic}, partition ${each.partition}, ${what}.`, to("topics", each.topic)]);
  }
  for (const each of cluster.few_copies) {
    found.push(["warn", `${each.topic} has ${plural(each.copies, "copy", "copies")}; the cluster's default is ${cluster.copies}.`, to("topics", each.topic)]);
  }
  for (const each of cluster.damage) {
    found.push(["bad", `${each.topic}, partition ${each.partition}: offsets ${each.first_offset} to ${each.next_offset - 1} cannot be read.`, to("topics", each.topic)]);
  }
  fill(place, found.length
    ? h("ul", { class: "attention" }, found.map(([kind, text, address]) => h("li", {}, badge(kind === "bad" ? "fault" : "warning", kind), " ", address ? link(address, text) : text)))
    : h("p", {}, badge("nothing", "good"), " All checks pass, every partition has its leader and its replicas."));
}
