// One group: members, offsets, lag over time, and changes.

import { api, query, remove, whole } from "../api.js";
import { Chart } from "../chart.js";
import { command, equivalent, request } from "../commands.js";
import { action, change, difference, toolbar } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { figuresOf } from "../figures.js";
import { NOTHING, compact, duration, number, sum } from "../format.js";
import { OverTime } from "../over-time.js";
import { badge, card, explained, facts, figure, link, settled, to } from "../parts.js";
import { Table } from "../table.js";
import { resetGroup } from "./group-reset.js";

export const KINDS = { stable: "good", empty: "plain", dead: "bad", preparingrebalance: "warn", completingrebalance: "warn" };
const LAG = ["group_lag_records", "group_lag_seconds"];

export async function showGroup(place, { parts, state, signal }) {
  const [name] = parts;
  const path = api("groups", name);
  const figures = h("div", { class: "figures" });
  const actions = h("div", {});
  const members = new Table(
    [
      { name: "client", title: "Client", of: (row) => row.client_id },
      { name: "member", title: "Member", of: (row) => row.member_id, show: (text) => h("span", { class: "mono" }, text) },
      { name: "host", title: "Host", of: (row) => row.host.replace(/^\//, "") },
      { name: "assignment", title: "Assignment", of: (row) => row.assignment.map((each) => `${each.topic} ${each.partitions.join(",")}`).join("; ") },
    ],
    { label: "Members", key: (row) => row.member_id, empty: "The group has no members at the moment: its offsets may be reset." },
  );
  const topics = new Table(
    [
      { name: "topic", title: "Topic", of: (row) => row.topic, show: (text) => link(to("topics", text), text) },
      { name: "partitions", title: "Partitions", of: (row) => row.partitions, isNumber: true, show: number },
      { name: "lag", title: "Lag", of: (row) => row.lag, isNumber: true, show: number },
      { name: "age", title: "Behind for", of: (row) => row.seconds, isNumber: true, show: duration },
      state.isReadOnly ? null : { name: "remove", title: "Action", isPlain: true, of: () => null, show: (_, row) => action(state, "Delete offsets", () => deleteOffsets(state, name, row.topic, refresh), { isDangerous: true, label: `Delete offsets in ${row.topic}` }) },
    ].filter(Boolean),
    { label: "Topics", key: (row) => row.topic, empty: "The group has committed no offsets." },
  );
  const offsets = new Table(
    [
      { name: "topic", title: "Topic", of: (row) => row.topic, show: (text) => link(to("topics", text), text) },
      { name: "partition", title: "Partition", of: (row) => row.partition, isNumber: true },
      { name: "committed", title: "Committed", of: (row) => row.committed_offset, isNumber: true, show: number },
      { name: "end", title: "End", of: (row) => row.log_end_offset, isNumber: true, show: number },
      { name: "lag", title: "Lag", of: (row) => row.lag_records, isNumber: true, show: number },
      { name: "age", title: "Behind for", of: (row) => row.lag_seconds, isNumber: true, show: duration },
    ],
    { label: "Offsets", key: (row) => `${row.topic}@${row.partition}`, empty: "The group has committed no offsets.", search: (row) => `${row.topic} ${row.partition}`, placeholder: "Filter partitions" },
  );
  const records = new Chart("Lag in records", compact);
  const seconds = new Chart("Behind for", duration, 60);
  const lag = new OverTime("Lag over time", [records, seconds], drawLag);
  fill(place, h("p", { class: "crumb" }, link("#/groups", "Groups")),
    h("div", { class: "heading" }, h("h1", {}, name), actions), figures,
    lag.element, card("Members", members.element), card("Topics", topics.element), card("Offsets", offsets.element),
    equivalent([command(state, "group describe", name), command(state, "group reset", name, "--to", "earliest", "--dry-run")],
      [request(state, "GET", path), request(state, "POST", `${path}/reset?validate_only=true`)]));

  async function drawLag(from) {
    const { value: found, error } = await settled(figuresOf({ names: LAG, groups: [name], from }, signal));
    if (error) return explained(error);
    records.draw(found.times, [found.sum("group_lag_records", "records")]);
    seconds.draw(found.times, [found.sum("group_lag_seconds", "behind for")]);
    return found.series.length ? null : "The history has no series for this group: it is new, or the history keeps 245 others.";
  }

  async function refresh() {
    const group = await whole(path, "offsets", signal);
    const known = group.offsets.filter((each) => each.lag_records !== null);
    const ages = group.offsets.map((each) => each.lag_seconds).filter((each) => each !== null);
    fill(figures,
      figure("State", badge(group.state, KINDS[group.state.toLowerCase()])),
      figure("Protocol", group.protocol || NOTHING),
      figure("Members", number(group.members.length)),
      figure("Lag", compact(sum(known.map((each) => each.lag_records))), known.length < group.offsets.length ? "of the partitions that answer" : "records"),
      figure("Behind for", ages.length ? duration(Math.max(...ages)) : NOTHING),
      figure("Generation", number(group.generation)),
      figure("Coordinator", `node ${group.coordinator}`));
    const busy = group.members.length ? `The group has members: ${group.members.slice(0, 3).map((each) => each.client_id || each.member_id).join(", ")}${group.members.length > 3 ? " …" : ""}. Stop them first.` : undefined;
    const wasOn = actions.dataset.busy === String(busy);
    if (!wasOn) {
      actions.dataset.busy = String(busy);
      fill(actions, toolbar(state,
        action(state, "Reset offsets", () => resetGroup(state, name, group, refresh), { why: busy, isMain: true }),
        action(state, "Delete group", () => deleteGroup(state, name), { why: busy, isDangerous: true }),
        busy && !state.isReadOnly ? h("span", { class: "muted" }, busy) : null));
    }
    members.show(group.members);
    topics.show(byTopic(group.offsets));
    offsets.show(group.offsets);
    await lag.refresh();
  }
  await refresh();
  return { refresh, title: name };
}

function byTopic(offsets) {
  const found = new Map();
  for (const each of offsets) {
    const row = found.get(each.topic) ?? { topic: each.topic, partitions: 0, lag: 0, seconds: null };
    row.partitions += 1;
    row.lag += each.lag_records ?? 0;
    if (each.lag_seconds !== null) row.seconds = Math.max(row.seconds ?? 0, each.lag_seconds);
    found.set(each.topic, row);
  }
  return [...found.values()];
}

function deleteGroup(state, name) {
  change({
    title: `Delete group ${name}`,
    check: async () => {
      const found = await remove(`${api("groups", name)}${query({ validate_only: true })}`);
      return [h("p", {}, "The group begins anew when a member comes back: where its clients' auto.offset.reset says."),
        facts([["Committed offsets deleted", number(found.offsets)]])];
    },
    apply: async () => {
      await remove(api("groups", name));
      location.hash = "#/groups";
      return `${name} is deleted.`;
    },
    command: () => command(state, "group delete", name, "--yes"),
    verb: "Delete",
    typed: name,
    isDangerous: true,
  });
}

function deleteOffsets(state, name, topic, onDone) {
  const path = `${api("groups", name)}/offsets`;
  change({
    title: `Delete the offsets of ${name} in ${topic}`,
    check: async () => {
      const found = await remove(`${path}${query({ topic, validate_only: true })}`);
      return difference(["Topic", "Partitions whose offsets are deleted"], [[topic, found.partitions.join(", ") || "none"]]);
    },
    apply: async () => {
      await remove(`${path}${query({ topic })}`);
      return `The offsets of ${name} in ${topic} are deleted.`;
    },
    command: () => `curl -X DELETE '${state.server}/${path}${query({ topic })}'`,
    verb: "Delete",
    isDangerous: true,
    onDone,
  });
}
