// Pipelines of Spark that report to the nodes, and one of them. They are started and stopped where they run.

import { get } from "../api.js";
import { Chart } from "../chart.js";
import { command, equivalent, request } from "../commands.js";
import { fill, h } from "../dom.js";
import { figuresOf } from "../figures.js";
import { NOTHING, bytes, compact, duration, number, rate, sum, time } from "../format.js";
import { OverTime } from "../over-time.js";
import { Silent, badge, card, facts, figure, link, nodeColumn, problem, to } from "../parts.js";
import { Table } from "../table.js";

const KINDS = { running: "good", starting: "plain", stopping: "warn", stopped: "plain", done: "good", failed: "bad", died: "bad" };
const STATE = { name: "state", title: "State", of: (row) => row.state ?? "starting", show: (text) => badge(text, KINDS[text]) };

/** Figures that are left out of a report are at their defaults. */
const filled = (part) => ({ state: "running", batches: 0, rows: 0, rows_per_s: 0, lag_records: -1, batch_id: -1, batch_ms: 0, state_rows: 0, state_bytes: 0, note: "", problem: "", at_ms: 0, ...part });
const parts = (row) => (row.parts ?? []).map(filled);

function lag(row) {
  const known = parts(row).map((each) => each.lag_records).filter((each) => each >= 0);
  return known.length ? sum(known) : null;
}

const lastError = (row) => row.problem || parts(row).map((each) => each.problem).find(Boolean) || "";

/** A pipeline may have reported to several nodes: the newest report counts. */
function newest(items, name) {
  const mine = items.filter((each) => each.name === name);
  return mine.sort((one, other) => (other.updated_ms ?? 0) - (one.updated_ms ?? 0))[0];
}

export async function show(place, context) {
  return context.parts.length ? showPipeline(place, context) : showList(place, context);
}

async function showList(place, { state, signal }) {
  const table = new Table(
    [
      { name: "name", title: "Pipeline", of: (row) => row.name, show: (name) => link(to("pipelines", name), name) },
      STATE,
      { name: "rows", title: "Rows/s", of: (row) => sum(parts(row).map((each) => each.rows_per_s)), isNumber: true, show: number },
      { name: "lag", title: "Lag", of: lag, isNumber: true, show: number, help: "Records that are not read yet" },
      { name: "batch", title: "Batch", of: (row) => Math.max(0, ...parts(row).map((each) => each.batch_ms)) / 1000, isNumber: true, show: duration, help: "The slowest part’s last batch" },
      { name: "host", title: "Host", of: (row) => row.host },
      { ...nodeColumn, help: "The node that it reports to" },
      { name: "updated", title: "Reported", of: (row) => row.updated_ms, isNumber: true, show: (ms) => time(ms) },
      { name: "problem", title: "Last error", of: lastError },
    ],
    { search: (row) => `${row.name} ${row.state} ${row.host} ${lastError(row)}`, placeholder: "Filter pipelines", label: "Pipelines",
      empty: "No pipeline has reported in a day. One that runs with --server reports here." },
  );
  const silent = new Silent("pipelines that report there are missing.");
  fill(place, h("h1", {}, "Pipelines"), silent.element,
    h("p", { class: "muted" }, "As they report to the nodes: ", h("code", {}, command(state, "pipeline run", "PATH")), ". They are started and stopped where they run."),
    table.element, equivalent(command(state, "pipeline list"), request(state, "GET", "api/v1/pipelines?node=1")));
  const refresh = async () => {
    const found = await get("lists/pipelines", signal);
    silent.show(found.unreachable);
    table.show(found.items);
  };
  await refresh();
  return { refresh };
}

async function showPipeline(place, { parts: [name], state, signal }) {
  const figures = h("div", { class: "figures" });
  const wrong = h("div", {});
  const run = h("div", {});
  const table = new Table(
    [
      { name: "part", title: "Part", of: (row) => row.part },
      STATE,
      { name: "rows_s", title: "Rows/s", of: (row) => row.rows_per_s, isNumber: true, show: number },
      { name: "rows", title: "Rows", of: (row) => row.rows, isNumber: true, show: number },
      { name: "lag", title: "Lag", of: (row) => (row.lag_records < 0 ? null : row.lag_records), isNumber: true, show: number },
      { name: "batch", title: "Batch", of: (row) => row.batch_ms / 1000, isNumber: true, show: duration },
      { name: "batches", title: "Batches", of: (row) => row.batches, isNumber: true, show: number },
      { name: "kept", title: "Kept state", of: (row) => row.state_bytes, isNumber: true, show: (value, row) => (row.state_rows ? `${compact(row.state_rows)} rows, ${bytes(value)}` : NOTHING), help: "What aggregates and joins keep" },
      { name: "note", title: "Note", of: (row) => row.problem || row.note },
    ],
    { label: "Parts", empty: "It has not reported its parts yet." },
  );
  const rows = new Chart("Rows processed", rate(number));
  const lagging = new Chart("Lag", compact);
  const overTime = new OverTime("Over time", [rows, lagging], async (from) => {
    const found = (await figuresOf({ names: ["pipeline_rows_per_second", "pipeline_lag_records"], from }, signal)).where("pipeline", name);
    rows.draw(found.times, [found.sum("pipeline_rows_per_second", "rows")]);
    lagging.draw(found.times, [found.sum("pipeline_lag_records", "records not read yet")]);
  });
  const about = h("div", {}, overTime.element, card("Sinks and jobs", table.element), card("Run", run));
  fill(place, h("p", { class: "crumb" }, link("#/pipelines", "Pipelines")), h("h1", {}, name), figures, wrong, about,
    equivalent(command(state, "pipeline status", name), request(state, "GET", "api/v1/pipelines")));
  async function refresh() {
    const found = newest((await get("lists/pipelines", signal)).items, name);
    if (!found) {
      about.hidden = true;
      fill(wrong, problem({ message: "No pipeline of this name has reported to a node in a day. Reports are kept in the memory of the node that gets them." }));
      return;
    }
    about.hidden = false;
    const all = parts(found);
    const text = lastError(found);
    fill(figures,
      figure("State", badge(found.state ?? "starting", KINDS[found.state])),
      figure("Rows", number(sum(all.map((each) => each.rows_per_s))), "per second"),
      figure("Lag", number(lag(found)), "records"),
      figure("Last batch", duration(Math.max(0, ...all.map((each) => each.batch_ms)) / 1000), "the slowest part"),
      figure("Running for", found.started_ms ? duration((found.updated_ms - found.started_ms) / 1000) : NOTHING));
    fill(wrong, text ? problem({ message: text }) : null);
    table.show(all);
    fill(run, facts([["File", h("code", {}, found.file)], ["Host", found.host || NOTHING], found.node === undefined ? null : ["Reports to", `node ${found.node}`], ["Process", found.pid || NOTHING], ["Spark", found.master || NOTHING], ["Started", time(found.started_ms)], ["Reported", time(found.updated_ms)]]));
  }
  await Promise.all([refresh(), overTime.refresh()]);
  return { refresh: () => Promise.all([refresh(), overTime.refresh()]), title: name };
}
