// Every setting of a node: its value, and whether it can be or was changed while the node runs.

import { api, get, query } from "../api.js";
import { command, equivalent, request } from "../commands.js";
import { action } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { badge, link, marked } from "../parts.js";
import { Table } from "../table.js";
import { setting } from "./setting-change.js";

export async function showSettings(place, { parts: [, node], state, signal }) {
  const title = `Settings of node ${node}`;
  const onlySet = h("input", { type: "checkbox", onchange: () => draw() });
  let items = [];
  const table = new Table([
    { name: "name", title: "Setting", of: (row) => row.name, show: (text, row) => h("div", {}, h("code", {}, text), h("small", { class: "muted block" }, marked(row.meaning))) },
    { name: "value", title: "Value", of: (row) => row.value, show: (text) => (text === null ? badge("hidden") : h("span", { class: "mono wrap" }, text === "" ? "(empty)" : text)) },
    { name: "origin", title: "Origin", of: (row) => (row.is_default ? "as started" : "changed at run time"), show: (text, row) => badge(text, row.is_default ? "plain" : "good"), help: "As started: by its file, environment or flags, or the default" },
    { name: "live", title: "Changes take", of: (row) => (row.is_live ? "effect at once" : "a restart") },
    state.isReadOnly ? null : { name: "change", title: "Action", isPlain: true, of: () => null, show: (_, row) => (row.is_live
      ? action(state, "Change", () => setting(state, refresh, undefined, { name: row.name, value: row.value ?? "", node }), { label: `Change ${row.name}` }) : "") },
  ].filter(Boolean), { search: (row) => `${row.name} ${row.value} ${row.meaning}`, placeholder: "Filter settings", label: "Settings", key: (row) => row.name });
  table.element.querySelector(".bar").append(h("label", { class: "inline" }, onlySet, "Only what was changed at run time"));
  fill(place, h("p", { class: "crumb" }, link("#/cluster", "Cluster")), h("h1", {}, title), table.element,
    equivalent(["dragoman config show --origin", command(state, "config set", "KEY=VALUE", "--node", node)],
      [request(state, "GET", api("cluster", "settings")), request(state, "POST", api("cluster", "settings"))]));
  const draw = () => table.show(items.filter((each) => !onlySet.checked || !each.is_default));
  async function refresh() {
    items = (await get(`kafka/settings${query({ node })}`, signal)).items;
    draw();
  }
  await refresh();
  return { title };
}
