// The list of groups; one of them is in `group.js`.

import { get } from "../api.js";
import { command, equivalent, request } from "../commands.js";
import { fill, h } from "../dom.js";
import { newestOf } from "../figures.js";
import { compact, duration, number } from "../format.js";
import { Silent, badge, link, settled, to } from "../parts.js";
import { Table } from "../table.js";
import { KINDS, showGroup } from "./group.js";

export async function show(place, context) {
  return context.parts.length ? showGroup(place, context) : showList(place, context);
}

async function showList(place, { state, signal, search }) {
  const table = new Table(
    [
      { name: "group", title: "Group", of: (row) => row.group, show: (name) => link(to("groups", name), name) },
      { name: "protocol", title: "Protocol", of: (row) => row.protocol, show: (text) => (text ? badge(text) : badge("none")), help: "Of its members, or of those that were there last" },
      { name: "state", title: "State", of: (row) => row.state, show: (text) => badge(text, KINDS[text.toLowerCase()]) },
      { name: "members", title: "Members", of: (row) => row.members, isNumber: true, show: number },
      { name: "topics", title: "Topics", of: (row) => row.topics.length, isNumber: true, show: number },
      { name: "lag", title: "Lag", of: (row) => row.lag_records, isNumber: true, show: compact, help: "Records that are not committed, of all topics" },
      { name: "age", title: "Behind for", of: (row) => row.seconds, isNumber: true, show: duration, help: "Age of the oldest record that is not committed; of the groups that the history keeps" },
    ],
    { search: (row) => `${row.group} ${row.protocol} ${row.state} ${row.topics.join(" ")}`, placeholder: "Filter groups and topics", label: "Groups",
      key: (row) => row.group, empty: "There are no groups yet: they come with the first consumer that commits." },
  );
  if (search.get("filter")) table.filter(search.get("filter"));
  const silent = new Silent("groups that are coordinated there are missing.");
  fill(place, h("h1", {}, "Groups"), silent.element, table.element,
    equivalent(command(state, "group list", "--lag"), request(state, "GET", "api/v1/usage/groups")));
  async function refresh() {
    const [found, history] = await Promise.all([get("lists/group-usage", signal), settled(newestOf(["group_lag_seconds"], signal))]);
    const seconds = history.value?.newest("group_lag_seconds", "group") ?? new Map();
    table.show(found.items.map((each) => ({ ...each, seconds: seconds.get(each.group) ?? (each.lag_records === 0 ? 0 : null) })));
    silent.show(found.unreachable);
  }
  await refresh();
  return { refresh };
}
