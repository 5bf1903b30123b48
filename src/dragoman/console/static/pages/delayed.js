// Records of one topic that wait for their time, or for the decision of their producer.

import { api, get, query } from "../api.js";
import { equivalent, request } from "../commands.js";
import { tell } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { NOTHING, bytes, number, time } from "../format.js";
import { Silent, badge, facts, figure, link, nodeColumn, to } from "../parts.js";
import { ORIGINS, headerOf, preview, text } from "../payloads.js";
import { indented } from "../records/content.js";
import { Table } from "../table.js";

const KINDS = { delayed: "plain", held: "warn", deciding: "warn", due: "good" };
const MEANINGS = { delayed: "Its time has not come.", held: "Its transaction is open.", deciding: "The decision is being written.", due: "On its way to the partition." };
const TAGS = ["rocketmq.TAGS", "TAGS"];

export async function showDelayed(place, { state, signal }, name) {
  const figures = h("div", { class: "figures" });
  const silent = new Silent("records that are stored there are missing.");
  const more = h("p", { class: "muted", hidden: true }, "Only the first 200 of each node are shown; the command line has all.");
  const table = new Table(
    [
      { name: "due", title: "Due", of: (row) => row.due_ms, show: (ms, row) => h("button", { class: "quiet", onclick: () => inspect(row), "aria-label": `Show the record due ${time(ms, true)}` }, time(ms, true)), help: "Producers of held records are asked then" },
      { name: "state", title: "State", of: (row) => row.state, show: (word) => h("span", { title: MEANINGS[word] }, badge(word, KINDS[word])) },
      { name: "partition", title: "Partition", of: (row) => row.partition, isNumber: true },
      { name: "key", title: "Key", of: (row) => preview(row.key), show: (shown) => h("span", { class: "mono" }, shown) },
      { name: "tags", title: "Tags", of: (row) => headerOf(row, TAGS) },
      { name: "value", title: "Value", of: (row) => preview(row.value), show: (shown) => h("span", { class: "mono" }, shown) },
      { name: "size", title: "Size", of: (row) => row.size_bytes, isNumber: true, show: bytes },
      { name: "origin", title: "Came from", of: (row) => headerOf(row, ORIGINS), show: (topic) => (topic ? link(to("topics", topic), topic) : NOTHING) },
      nodeColumn,
    ],
    { order: { name: "due", isDown: false }, search: (row) => `${row.state} ${text(row.key)} ${text(row.value)} ${headerOf(row, TAGS)} ${headerOf(row, ORIGINS)}`, placeholder: "Filter these records", label: "Delayed records", empty: "No record for this topic waits." },
  );
  const path = api("topics", name, "delayed");
  fill(place, h("p", { class: "crumb" }, link("#/dead-letters", "Dead letters and delayed records")), h("h1", {}, name),
    h("p", {}, "Stored until their time comes. ", link(to("topics", name), "The topic")), figures, silent.element, more, table.element,
    equivalent(`curl '${state.server}/${path}?node=1'`, request(state, "GET", `${path}?node=1`)));

  function inspect(row) {
    tell(`Due ${time(row.due_ms, true)}`, [
      facts([["State", `${row.state}: ${MEANINGS[row.state]}`], ["Partition", row.partition], ["Key", h("code", {}, text(row.key))], ["Came from", headerOf(row, ORIGINS) || NOTHING]]),
      h("h3", {}, "Value"), h("pre", {}, indented(text(row.value))),
      h("h3", {}, "Headers"), facts(row.headers.map((each) => [each.name, h("code", {}, text(each.value))])),
    ]);
  }

  async function refresh() {
    const found = await get(`lists/delayed-records${query({ topic: name })}`, signal);
    silent.show(found.unreachable);
    more.hidden = !found.has_more;
    table.show(found.items);
    const next = Math.min(...found.items.map((each) => each.due_ms));
    fill(figures, figure("Waiting", `${number(found.items.length)}${found.has_more ? " or more" : ""}`),
      figure("Held", number(found.items.filter((each) => each.state === "held").length), "transactions that are open"),
      figure("Next", found.items.length ? time(next) : NOTHING));
  }
  await refresh();
  return { refresh, title: `${name}: delayed` };
}
