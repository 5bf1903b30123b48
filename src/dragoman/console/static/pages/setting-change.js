// Changing a setting of nodes that run.

import { api, get, post } from "../api.js";
import { command, option } from "../commands.js";
import { change, difference, field } from "../dialogs.js";
import { h } from "../dom.js";

/** Change a setting of a node, or of all; `row` is returned to the start's value, `first` is what the form begins with. */
export function setting(state, refresh, row, first = {}) {
  const name = h("input", { required: true, autocomplete: "off", value: row?.name ?? first.name ?? "" });
  const value = h("input", { autocomplete: "off", value: row?.value ?? first.value ?? "" });
  const node = h("input", { type: "number", min: 0, placeholder: "all nodes", value: first.node ?? "" });
  change({
    title: row ? `Return ${row.name} to the start's value` : "Change a setting",
    fields: row ? null : [field("Setting", name, "one that the reference of settings marks as live"), field("Value", value), field("Node", node)],
    wanted: () => row
      ? { node_id: row.node_id, unset: [row.name] }
      : { node_id: node.value === "" ? null : Number(node.value), values: { [name.value.trim()]: value.value } },
    check: async (asked) => {
      const { items } = await get(api("cluster", "settings"));
      const key = row?.name ?? name.value.trim();
      const now = items.find((each) => each.name === key && each.node_id === asked.node_id);
      return [difference(["Setting", "Now", "Afterwards"], [[h("code", {}, key), now ? now.value ?? "hidden" : "as started", row ? "as started" : h("ins", {}, value.value)]]),
        h("p", { class: "muted" }, "It takes effect at once, and for later starts. The node checks the value when it is applied.")];
    },
    apply: async (asked) => (await post(api("cluster", "settings"), asked)).detail,
    command: (asked) => row ? command(state, "config unset", row.name, option("--node", row.node_id))
      : command(state, "config set", `${name.value.trim()}=${value.value}`, option("--node", asked.node_id)),
    verb: row ? "Return" : "Change", onDone: refresh,
  });
}
