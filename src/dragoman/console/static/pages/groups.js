// Groups, and one of them.

import { api, get } from "../api.js";
import { fill, h } from "../dom.js";
import { number } from "../format.js";
import { badge, card, equivalent, figure, link, shell, to } from "../parts.js";
import { Table } from "../table.js";

const KINDS = { stable: "good", empty: "plain", dead: "bad" };

export async function show(place, context) {
  return context.parts.length ? showGroup(place, context) : showList(place, context);
}

async function showList(place, { state, signal }) {
  const table = new Table(
    [
      { name: "group", title: "Group", of: (row) => row.group, show: (name) => link(to("groups", name), name) },
      { name: "protocol", title: "Protocol", of: (row) => row.protocol, show: (text) => badge(text) },
      { name: "state", title: "State", of: (row) => row.state, show: (text) => badge(text, KINDS[text.toLowerCase()]) },
      { name: "members", title: "Members", of: (row) => row.members, isNumber: true, show: number },
    ],
    { search: (row) => `${row.group} ${row.protocol} ${row.state}`, placeholder: "Filter groups", label: "Groups", empty: "There are no groups yet." },
  );
  const missing = h("p", { class: "stale", hidden: true });
  fill(place, h("h1", {}, "Groups"), missing, table.element, equivalent(`dragoman group list --server ${state.server}`, `GET ${state.server}/api/v1/groups`));
  async function refresh() {
    const found = await get("lists/groups", signal);
    table.show(found.items);
    missing.hidden = !found.unreachable.length;
    missing.textContent = `Nodes ${found.unreachable.join(", ")} do not answer; groups that they coordinate are missing.`;
  }
  await refresh();
  return { refresh };
}

async function showGroup(place, { parts, state, signal }) {
  const [name] = parts;
  const figures = h("div", { class: "figures" });
  const members = new Table(
    [
      { name: "client", title: "Client", of: (row) => row.client_id },
      { name: "member", title: "Member", of: (row) => row.member_id, show: (text) => h("span", { class: "mono" }, text) },
      { name: "host", title: "Host", of: (row) => row.host },
      { name: "assignment", title: "Assignment", of: (row) => row.assignment.map((each) => `${each.topic} ${each.partitions.join(",")}`).join("; ") },
    ],
    { label: "Members", empty: "Nobody is in the group at the moment." },
  );
  const offsets = new Table(
    [
      { name: "topic", title: "Topic", of: (row) => row.topic, show: (text) => link(to("topics", text), text) },
      { name: "partition", title: "Partition", of: (row) => row.partition, isNumber: true },
      { name: "committed", title: "Committed", of: (row) => row.committed_offset, isNumber: true, show: number },
      { name: "end", title: "End", of: (row) => row.log_end_offset, isNumber: true, show: number },
      { name: "lag", title: "Lag", of: (row) => row.lag_records, isNumber: true, show: number },
    ],
    { label: "Offsets", empty: "The group has committed no offsets.", search: (row) => `${row.topic} ${row.partition}`, placeholder: "Filter partitions" },
  );
  fill(place, h("p", {}, link("#/groups", "Groups")), h("h1", {}, name), figures, card("Members", members.element), card("Offsets", offsets.element),
    equivalent(`dragoman group describe ${shell(name)} --server ${state.server}`, `GET ${state.server}/${api("groups", name)}`));
  async function refresh() {
    const group = await get(api("groups", name), signal);
    const known = group.offsets.filter((each) => each.lag_records !== null);
    fill(figures,
      figure("State", group.state),
      figure("Protocol", group.protocol),
      figure("Members", number(group.members.length)),
      figure("Lag", number(known.reduce((sum, each) => sum + each.lag_records, 0)), "records"),
      figure("Generation", number(group.generation)),
      figure("Coordinator", `node ${group.coordinator}`));
    members.show(group.members);
    offsets.show(group.offsets);
  }
  await refresh();
  return { refresh, title: name };
}
