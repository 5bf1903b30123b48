// Who is connected, by protocol.

import { api, get, query, remove } from "../api.js";
import { equivalent, request } from "../commands.js";
import { action, change, readOnlyNote } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { NOTHING, bytes, duration, number } from "../format.js";
import { Silent, badge, facts, figure, nodeColumn } from "../parts.js";
import { Table } from "../table.js";

export async function show(place, { state, signal, search }) {
  const figures = h("div", { class: "figures" });
  const table = new Table(
    [
      { name: "id", title: "Connection", of: (row) => row.id, show: (text) => h("span", { class: "mono" }, text) },
      { name: "protocol", title: "Protocol", of: (row) => row.protocol || "not known yet", show: (text) => badge(text) },
      nodeColumn,
      { name: "client", title: "Client", of: (row) => row.client_id },
      { name: "user", title: "User", of: (row) => row.user },
      { name: "peer", title: "Address", of: (row) => addressOf(row) },
      { name: "encrypted", title: "TLS", of: (row) => (row.encrypted ? "yes" : "no") },
      { name: "age", title: "Age", of: (row) => row.age_ms, isNumber: true, show: (ms) => duration(ms / 1000) },
      { name: "idle", title: "Idle", of: (row) => row.idle_ms, isNumber: true, show: (ms) => (ms === null ? NOTHING : duration(ms / 1000)) },
      { name: "bytes", title: "Bytes", of: (row) => row.bytes, isNumber: true, show: bytes, help: "Received and sent" },
      state.isReadOnly ? null : { name: "close", title: "Action", isPlain: true, of: () => null, show: (_, row) => action(state, "Close", () => close(row), { isDangerous: true, label: `Close ${row.id}` }) },
    ].filter(Boolean),
    { search: (row) => `${row.id} ${row.protocol} ${row.client_id} ${row.user} ${row.peer}`, placeholder: "Filter connections", label: "Connections",
      key: (row) => `${row.node} ${row.id}`, empty: "Nothing is connected." },
  );
  if (search.get("filter")) table.filter(search.get("filter"));
  const silent = new Silent("what is connected there is missing.");
  fill(place, h("h1", {}, "Connections"), h("p", { class: "muted" }, "To all nodes of the cluster."), readOnlyNote(state), silent.element, figures, table.element,
    equivalent([`curl '${state.server}/api/v1/connections?node=1'`, `curl -X DELETE '${state.server}/api/v1/connections/ID?node=1'`],
      [request(state, "GET", "api/v1/connections?node=1"), request(state, "DELETE", "api/v1/connections/ID?node=1")]));

  function close(row) {
    change({
      title: "Close a connection",
      fields: [
        h("p", {}, "The client is disconnected. Most clients connect again at once: to keep one out, disable its user or deny it by a rule."),
        facts([["Connection", row.id], row.node === undefined ? null : ["Node", row.node], ["Client", row.client_id || NOTHING], ["User", row.user], ["Address", addressOf(row)]]),
      ],
      apply: async () => {
        await remove(`${api("connections", row.id)}${query({ node: row.node })}`);
        return `${row.id} is closed.`;
      },
      verb: "Close", isDangerous: true, onDone: refresh,
    });
  }

  async function refresh() {
    const found = await get("lists/connections", signal);
    const counts = new Map();
    for (const each of found.items) {
      const name = each.protocol || "not known yet";
      counts.set(name, (counts.get(name) ?? 0) + 1);
    }
    silent.show(found.unreachable);
    fill(figures, [...counts].sort().map(([name, count]) => figure(name, number(count))));
    table.show(found.items);
  }
  await refresh();
  return { refresh };
}

/** A connection by a socket of the machine has no address, such as the console's. */
const addressOf = (row) => (/^(:0?)?$/.test(row.peer) ? "its machine" : row.peer);
