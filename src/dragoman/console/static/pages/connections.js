// Who is connected, by protocol.

import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { bytes, duration, number } from "../format.js";
import { badge, equivalent, figure } from "../parts.js";
import { Table } from "../table.js";

export async function show(place, { state, signal }) {
  const figures = h("div", { class: "figures" });
  const table = new Table(
    [
      { name: "id", title: "Connection", of: (row) => row.id, show: (text) => h("span", { class: "mono" }, text) },
      { name: "protocol", title: "Protocol", of: (row) => row.protocol, show: (text) => badge(text || "not known yet") },
      { name: "client", title: "Client", of: (row) => row.client_id },
      { name: "user", title: "User", of: (row) => row.user },
      { name: "peer", title: "Address", of: (row) => row.peer },
      { name: "encrypted", title: "TLS", of: (row) => (row.encrypted ? "yes" : "no") },
      { name: "age", title: "Age", of: (row) => row.age_ms, isNumber: true, show: (ms) => duration(ms / 1000) },
      { name: "idle", title: "Idle", of: (row) => row.idle_ms, isNumber: true, show: (ms) => (ms === null ? "–" : duration(ms / 1000)) },
      { name: "bytes", title: "Bytes", of: (row) => row.bytes, isNumber: true, show: bytes },
    ],
    { search: (row) => JSON.stringify(row), placeholder: "Filter connections", label: "Connections" },
  );
  fill(place, h("h1", {}, "Connections"), figures, table.element, equivalent(`curl ${state.server}/api/v1/connections`, `GET ${state.server}/api/v1/connections`));
  async function refresh() {
    const { items } = await get("lists/connections", signal);
    const counts = new Map();
    for (const each of items) counts.set(each.protocol, (counts.get(each.protocol) ?? 0) + 1);
    fill(figures, [...counts].map(([name, count]) => figure(name, number(count))));
    table.show(items);
  }
  await refresh();
  return { refresh };
}
