// Records that consumers have given up, and those that wait: topics of dead letters and retries.

import { api, get, post } from "../api.js";
import { command, equivalent, request, shell } from "../commands.js";
import { Nothing, change, checkbox, field, readOnlyNote, tell } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { NOTHING, bytes, compact, number, plural, sum, time } from "../format.js";
import { Silent, badge, card, facts, figure, link, nodeColumn, problem, to, warning } from "../parts.js";
import { ORIGINS, headerOf, preview, text } from "../payloads.js";
import { indented } from "../records/content.js";
import { Table } from "../table.js";
import { showDelayed } from "./delayed.js";

const DLQ = "%DLQ%";
const RETRY = "%RETRY%";
// Topics of the Spark source have any name; these are the usual ones.
const USUAL = /(^|[^a-z])(dlq|dead[-_.]?letters?)([^a-z]|$)/i;
const TOPICS_MAX = 200;
const SHOWN = 200;
const MARK = "dragoman.resent.from";
const KINDS = { sent: "good", ready: "good", sent_before: "warn", failed: "bad", gone: "bad", no_target: "warn", too_large: "bad" };

export async function show(place, context) {
  const [first, topic] = context.parts;
  if (first === "+delayed" && topic) return showDelayed(place, context, topic);
  return context.parts.length ? showTopic(place, context) : showList(place, context);
}

function kindOf(name) {
  if (name.startsWith(DLQ)) return "dead letters of a group";
  if (name.startsWith(RETRY)) return "retries of a group";
  return USUAL.test(name) ? "dead letters" : "";
}

async function showList(place, { state, signal }) {
  const table = new Table(
    [
      { name: "name", title: "Topic", of: (row) => row.name, show: (name) => link(to("dead-letters", name), name) },
      { name: "kind", title: "What it holds", of: (row) => kindOf(row.name), show: (text) => badge(text, text.startsWith("retries") ? "plain" : "warn") },
      { name: "group", title: "Group", of: groupOf, show: (name) => (name ? link(to("groups", name), name) : NOTHING) },
      { name: "count", title: "Records", of: (row) => row.count, isNumber: true, show: number, help: "Offsets of the topic: at most as many records" },
      { name: "size", title: "Size", of: (row) => row.size, isNumber: true, show: bytes },
    ],
    { search: (row) => row.name, placeholder: "Filter topics", label: "Topics of dead letters", empty: "There are no topics of dead letters or retries: no consumer has given up a record." },
  );
  const delayed = new Table(
    [
      { name: "topic", title: "Topic", of: (row) => row.topic, show: (name) => link(to("dead-letters", "+delayed", name), name) },
      { name: "records", title: "Delayed and held", of: (row) => row.records, isNumber: true, show: number },
      nodeColumn,
    ],
    { label: "Delayed records by topic", empty: "No record waits for its time." },
  );
  const waiting = h("div", { class: "figures" });
  const missing = h("div", {});
  const silent = new Silent("records that are stored there until their time are missing.");
  const named = h("input", { name: "topic", "aria-label": "Another topic of dead letters", placeholder: "Another topic, such as of deadLetterTopic" });
  const open = h("form", { class: "bar named", onsubmit: (event) => { event.preventDefault(); if (named.value) location.hash = to("dead-letters", named.value); } }, named, h("button", {}, "Open"));
  fill(place, h("h1", {}, "Dead letters and delayed records"), waiting, open, missing, table.element,
    h("p", { class: "muted" }, "RocketMQ’s groups put what they give up into ", h("code", {}, "%DLQ%GROUP"), "; the Spark source puts values that do not decode into its ", h("code", {}, "deadLetterTopic"), "."),
    card("Records that wait for their time", silent.element, delayed.element),
    equivalent([command(state, "topic list"), `curl '${state.server}/api/v1/delayed?node=1'`], [request(state, "GET", "api/v1/topics"), request(state, "GET", "api/v1/delayed?node=1")]));

  async function refresh() {
    const [topics, held] = await Promise.all([
      get("lists/topics", signal),
      get("lists/delayed", signal).catch((error) => {
        if (error.name === "AbortError") throw error;
        return null;
      }),
    ]);
    const found = topics.items.filter((each) => kindOf(each.name));
    const rows = await inTurns(found.slice(0, TOPICS_MAX), (each) => described(each.name, signal));
    fill(missing, found.length > TOPICS_MAX ? warning(`Only the first ${number(TOPICS_MAX)} of ${number(found.length)} topics are shown.`) : null);
    table.show(rows);
    const dead = rows.filter((each) => !each.name.startsWith(RETRY));
    delayed.show(held?.items ?? []);
    silent.show(held?.unreachable ?? []);
    fill(waiting,
      figure("Dead letters", compact(total(dead)), `in ${plural(dead.length, "topic")}`),
      figure("Retries", compact(total(rows.filter((each) => each.name.startsWith(RETRY)))), "records of retry topics"),
      figure("Delayed", number(held?.items.reduce((one, each) => one + each.records, 0)), held ? "delayed and held records" : "needs the right to describe the cluster"));
  }
  await refresh();
  return { refresh };
}

const groupOf = (row) => (row.name.startsWith("%") ? row.name.replace(/^%(DLQ|RETRY)%/, "") : "");
const total = (rows) => sum(rows.map((each) => each.count));

async function described(name, signal) {
  try {
    const { partitions } = await get(api("topics", name), signal);
    return { name, partitions,
      count: sum(partitions.map((each) => (each.high_watermark ?? 0) - (each.log_start_offset ?? 0))),
      size: sum(partitions.map((each) => each.size_bytes)) };
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return { name, partitions: [], count: null, size: null };
  }
}

/** A few at a time: a page of hundreds of topics must not take all of the node's places. */
async function inTurns(items, work, width = 4) {
  const found = [];
  let next = 0;
  const run = async () => {
    while (next < items.length) {
      const index = next++;
      found[index] = await work(items[index]);
    }
  };
  await Promise.all(Array.from({ length: width }, run));
  return found;
}

// ---- one topic

async function showTopic(place, { parts: [name], state, signal }) {
  const chosen = new Set();
  const keyOf = (row) => `${row.partition}/${row.offset}`;
  let rows = [];
  const table = new Table(
    [
      { name: "chosen", title: "Chosen", isChoice: true, of: (row) => (row.isChosen ? 1 : 0), show: (_, row) => h("input", { type: "checkbox", checked: row.isChosen, "aria-label": `Choose record ${keyOf(row)}`, onchange: (event) => { chosen[event.target.checked ? "add" : "delete"](keyOf(row)); draw(); } }) },
      { name: "place", title: "Partition/offset", of: keyOf, show: (text_, row) => h("button", { class: "quiet mono", onclick: () => inspect(row), "aria-label": `Show record ${text_}` }, text_) },
      { name: "time", title: "Time", of: (row) => row.timestamp, isNumber: true, show: (ms) => time(ms) },
      { name: "key", title: "Key", of: (row) => preview(row.key), show: (shown) => h("span", { class: "mono" }, shown) },
      { name: "value", title: "Value", of: (row) => preview(row.value), show: (shown) => h("span", { class: "mono" }, shown) },
      { name: "origin", title: "Came from", of: (row) => headerOf(row, ORIGINS), show: (topic) => (topic ? link(to("topics", topic), topic) : NOTHING) },
      { name: "error", title: "Error", of: (row) => headerOf(row, ["dragoman.error"]) },
    ],
    { order: { name: "time", isDown: true }, search: (row) => `${keyOf(row)} ${text(row.key)} ${text(row.value)} ${headerOf(row, ORIGINS)} ${headerOf(row, ["dragoman.error"])}`, placeholder: "Filter these records", label: "Dead letters", empty: "The topic has no records." },
  );
  const note = h("p", { class: "muted" });
  const all = h("button", { type: "button", onclick: () => { for (const row of table.shown ?? []) chosen.add(keyOf(row)); draw(); } }, "Choose all shown");
  const none = h("button", { type: "button", onclick: () => { chosen.clear(); draw(); } }, "Choose none");
  const resend = h("span", {});
  const isRetry = name.startsWith(RETRY);
  fill(place, h("p", { class: "crumb" }, link("#/dead-letters", "Dead letters")), h("h1", {}, name), note,
    h("div", { class: "bar", role: "group", "aria-label": "Chosen records" }, all, none, resend, link(`${to("topics", name)}/records`, "Search in this topic")),
    readOnlyNote(state), table.element,
    equivalent(name.startsWith(DLQ) ? `dragoman rocketmq dlq-list --group ${shell(name.slice(DLQ.length))}` : `dragoman consume ${shell(name)} --from earliest`, request(state, "GET", `${api("topics", name, "partitions", 0, "records")}?last=100`)));

  function draw() {
    table.show(rows.map((each) => ({ ...each, isChosen: chosen.has(keyOf(each)) })));
    const count = chosen.size;
    fill(resend, h("button", { class: "primary", disabled: !count, title: count ? null : "Choose records first.", onclick: () => askResend() }, count ? `Resend ${number(count)}` : "Resend"));
  }

  function inspect(row) {
    const shown = (payload) => h("pre", {}, indented(text(payload)));
    tell(`Record ${keyOf(row)}`, [
      facts([["Time", time(row.timestamp, true)], ["Key", h("code", {}, text(row.key))], ["Came from", headerOf(row, ORIGINS) || NOTHING]]),
      h("h3", {}, "Value"), shown(row.value),
      h("h3", {}, plural(row.header_count, "header")),
      facts(row.headers.map((each) => [each.name, h("code", {}, text(each.value))])),
    ]);
  }

  function askResend() {
    const target = h("input", { name: "to", autocomplete: "off", placeholder: isRetry || !name.startsWith(DLQ) ? "the topic each came from" : `${RETRY}${name.slice(DLQ.length)}` });
    const repeat = h("input", { type: "checkbox", name: "repeat" });
    const send = (wanted, validateOnly) => post("dead-letters", { ...wanted, validate_only: validateOnly }, signal);
    let done = null;
    change({
      title: `Resend ${plural(chosen.size, "record")}`,
      fields: [
        h("p", {}, "Keys, values and headers are kept, but for those about earlier deliveries. Each copy has the header ", h("code", {}, MARK),
          ", which names its dead letter: a dead letter with a copy in the target is not sent again. The dead letters stay here."),
        field("To", target, name.startsWith(DLQ) ? "Empty: the retry topic of the group, which no other group reads." : "Empty: the topic that each says it came from."),
        checkbox("Also those that were sent before", repeat),
        readOnlyNote(state),
      ],
      wanted: () => ({
        topic: name, to: target.value, repeat: repeat.checked,
        records: [...chosen].map((each) => { const [partition, offset] = each.split("/").map(Number); return { partition, offset }; }),
      }),
      check: async (wanted) => {
        const found = await send(wanted, true);
        const ready = found.items.filter((each) => each.outcome === "ready").length;
        const shown = [h("p", {}, ready ? `${plural(ready, "record")} would be sent.` : "None of these can be sent."), outcomes(found)];
        return ready ? shown : new Nothing(shown);
      },
      apply: async (wanted) => {
        done = await send(wanted, false);
        for (const each of done.items) if (each.outcome === "sent") chosen.delete(`${each.partition}/${each.offset}`);
        return `${plural(done.items.filter((each) => each.outcome === "sent").length, "record")} sent.`;
      },
      verb: "Send",
      onDone: () => {
        draw();
        tell("What was sent", outcomes(done));
      },
    });
  }

  async function refresh() {
    const topic = await described(name, signal);
    const share = Math.max(1, Math.min(100, Math.floor(SHOWN / Math.max(1, topic.partitions.length))));
    const pages = await inTurns(topic.partitions, (each) => get(`${api("topics", name, "partitions", each.partition, "records")}?last=${share}&limit=${share}`, signal));
    rows = pages.flatMap((each) => each.items);
    note.textContent = topic.count === null ? "The topic cannot be described." : `The newest ${plural(rows.length, "record")} of at most ${number(topic.count)}.`;
    draw();
  }
  draw();
  if ((await described(name, signal)).count === null) {
    fill(place, h("p", { class: "crumb" }, link("#/dead-letters", "Dead letters")), h("h1", {}, name), problem({ message: "There is no such topic, or you may not describe it." }));
    return { title: name };
  }
  await refresh();
  return { title: name };
}

function outcomes(answer) {
  const table = new Table(
    [
      { name: "place", title: "Record", of: (row) => `${row.partition}/${row.offset}` },
      { name: "outcome", title: "Outcome", of: (row) => row.outcome, show: (word) => badge(word.replaceAll("_", " "), KINDS[word]) },
      { name: "to", title: "To", of: (row) => row.to, show: (to_, row) => (row.to_offset === null ? to_ : `${to_} ${row.to_partition}/${row.to_offset}`) },
      { name: "detail", title: "Detail", of: (row) => row.detail },
    ],
    { label: "Outcomes" },
  );
  table.show(answer.items);
  return [table.element, Object.entries(answer.unsearched).map(([topic, why]) => warning(`${topic}: ${why}.`, "not sure"))];
}
