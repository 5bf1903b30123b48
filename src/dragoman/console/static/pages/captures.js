// Captures of databases, and one of them.

import { api, get, post, query, remove } from "../api.js";
import { action, field, formDialog, readOnlyNote } from "../forms.js";
import { fill, h } from "../dom.js";
import { drawFindings } from "../findings.js";
import { bytes, duration, number, rate } from "../format.js";
import { OverTime } from "../over-time.js";
import { badge, card, equivalent, facts, figure, link, shell, to, toast } from "../parts.js";
import { Table } from "../table.js";
import { showWizard } from "./capture-wizard.js";

const KINDS = { streaming: "good", snapshotting: "good", starting: "plain", paused: "warn", waiting: "warn", failed: "bad", stopped: "bad" };
// What is left out of a status is at its default.
const STATUS = { problem: "", lsn: "", lag_bytes: -1, lag_s: -1, retained_bytes: -1, rows: 0, rows_per_s: 0, tables: [], warnings: [] };
const filled = (capture) => ({ ...capture, status: { ...STATUS, ...capture.status } });
/** An age of nothing is no time at all. */
const age = (seconds) => (seconds === 0 ? "0 s" : duration(seconds));
const known = (value) => (value < 0 ? null : value);

export async function show(place, context) {
  const [name] = context.parts;
  if (name === "+add") return showWizard(place, context);
  return name ? showCapture(place, context) : showList(place, context);
}

async function showList(place, { state, signal }) {
  const table = new Table(
    [
      { name: "name", title: "Capture", of: (row) => row.name, show: (name) => link(to("captures", name), name) },
      { name: "state", title: "State", of: (row) => row.status.state, show: (text) => badge(text, KINDS[text]) },
      { name: "node", title: "Node", of: (row) => row.node, isNumber: true },
      { name: "rows", title: "Rows/s", of: (row) => row.status.rows_per_s, isNumber: true, show: number },
      { name: "lag", title: "Lag", of: (row) => known(row.status.lag_bytes), isNumber: true, show: bytes, help: "WAL that is not captured yet" },
      { name: "behind", title: "Behind", of: (row) => known(row.status.lag_s), isNumber: true, show: age, help: "Age of the last captured change" },
      { name: "retained", title: "Retained WAL", of: (row) => known(row.status.retained_bytes), isNumber: true, show: bytes, help: "What the database keeps because of the slot" },
      { name: "problem", title: "Problem", of: (row) => row.status.problem || row.status.warnings[0] },
    ],
    { search: (row) => `${row.name} ${row.status.state} ${row.status.problem}`, placeholder: "Filter captures", label: "Captures", empty: "No database is captured yet. “Add a capture” leads through it." },
  );
  const add = h("button", { class: "primary", onclick: () => { location.hash = "#/captures/+add"; } }, "Add a capture");
  fill(place, h("h1", {}, "Captures"), h("p", { class: "muted" }, "Changes of PostgreSQL’s rows, as records of topics."), h("div", { class: "bar" }, add), table.element,
    equivalent(`dragoman cdc status --server ${state.server}`, `GET ${state.server}/api/v1/captures`));
  const refresh = async () => table.show((await get("lists/captures", signal)).items.map(filled));
  await refresh();
  return { refresh };
}

async function showCapture(place, { parts, state, signal }) {
  const [name] = parts;
  const path = api("captures", name);
  const figures = h("div", { class: "figures" });
  const wrong = h("div", {});
  const definition = h("div", {});
  const actions = h("div", { class: "bar", role: "group", "aria-label": "Actions" });
  const findings = h("div", {}, h("p", { class: "muted" }, "Not checked yet."));
  const progress = new Table(
    [
      { name: "table", title: "Table", of: (row) => row.table },
      { name: "done", title: "Snapshot", of: (row) => (row.is_done ? 1 : row.rows / Math.max(row.rows_expected, row.rows, 1)), show: drawProgress },
      { name: "rows", title: "Rows", of: (row) => row.rows ?? 0, isNumber: true, show: number },
      { name: "expected", title: "Of about", of: (row) => known(row.rows_expected ?? -1), isNumber: true, show: number },
      { name: "bytes", title: "Bytes", of: (row) => row.bytes ?? 0, isNumber: true, show: bytes },
      { name: "left", title: "Left", of: (row) => (row.is_done ? 0 : known(row.seconds_left ?? -1)), isNumber: true, show: age },
    ],
    { label: "Snapshot by table", empty: "No snapshot is being made." },
  );
  const overTime = new OverTime(
    [
      { title: "Rows captured", figures: { capture_rows_per_second: "rows" }, show: rate(number) },
      { title: "Retained WAL", figures: { capture_retained_bytes: "retained", capture_lag_bytes: "not captured yet" }, show: bytes },
      { title: "Behind the database", figures: { capture_lag_seconds: "age of the last change" }, show: age },
    ],
    { capture: name },
    signal,
  );
  const check = action("Check the database", state, async () => {
    fill(findings, h("p", { class: "muted" }, "Asking the database …"));
    try {
      fill(findings, drawFindings((await post("api/v1/capture-checks", { name }, signal)).items));
    } catch (error) {
      fill(findings, h("p", { class: "problem", role: "alert" }, error.message));
    }
  });
  fill(place, h("p", { class: "crumb" }, link("#/captures", "Captures")), h("h1", {}, name), figures, wrong, actions, readOnlyNote(state),
    overTime.element,
    card("Snapshot by table", progress.element),
    h("div", { class: "cards" }, card("Definition", definition), card("What the database says", h("div", { class: "bar" }, check), findings)),
    equivalent(`dragoman cdc status ${shell(name)} --server ${state.server}`, `GET ${state.server}/${path}`));

  let drawn = "";
  async function refresh() {
    const capture = filled(await get(path, signal));
    const status = capture.status;
    fill(figures,
      figure("State", badge(status.state, KINDS[status.state]), capture.node === null ? "no node runs it" : `on node ${capture.node}`),
      figure("Rows", number(status.rows_per_s), "per second"),
      figure("Captured", number(capture.rows), "rows since this node took over"),
      figure("Lag", bytes(known(status.lag_bytes)), `behind by ${age(known(status.lag_s))}`),
      figure("Retained WAL", bytes(known(status.retained_bytes)), "kept for the slot"),
      figure("Restarts", number(capture.restarts)));
    fill(wrong, status.problem ? h("p", { class: "problem", role: "alert" }, status.problem) : null,
      status.warnings.map((each) => h("p", { class: "warning" }, badge("warning", "warn"), " ", each)));
    progress.show(status.tables);
    const key = JSON.stringify([capture.paused, capture.definition, capture.principal]);
    if (key !== drawn) {
      drawn = key;
      fill(definition, drawDefinition(capture));
      fill(actions, drawActions(capture));
    }
  }

  function drawActions(capture) {
    const command = async (body, said) => {
      await post(`${path}/commands`, body, signal);
      toast(said);
      await refresh();
    };
    return [
      capture.paused
        ? action("Resume", state, () => command({ command: "resume" }, `${name} resumes where it stopped.`), { kind: "primary" })
        : action("Pause …", state, () => formDialog(`Pause ${name}?`,
          h("p", {}, "Nothing is captured until it resumes. The slot stays, so the database keeps its WAL meanwhile: watch the disk of the database."),
          "Pause", () => command({ command: "pause" }, `${name} is paused.`))),
      action("Snapshot …", state, () => {
        const tables = h("input", { name: "tables", placeholder: "public.orders, public.items" });
        return formDialog(`Read tables of ${name} again?`, [
          h("p", {}, "The rows are sent once more, beside the stream of changes. Nothing that was captured is removed, and consumers see the rows as SNAPSHOT events."),
          field("Tables", tables, "Separated by commas; empty: all."),
        ], "Snapshot", () => command({ command: "snapshot", tables: tables.value.split(",").map((each) => each.trim()).filter(Boolean) }, "The snapshot begins."));
      }),
      action("Rewind …", state, () => {
        const lsn = h("input", { name: "lsn", placeholder: "0/16B3748", required: true, pattern: "[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}" });
        return formDialog(`Capture changes of ${name} again?`, [
          h("p", {}, `Changes after this position are captured once more, so consumers get them twice. The slot must still retain it; all before ${capture.status.lsn || "the current position"} is captured.`),
          field("Position (LSN)", lsn, "Such as 0/16B3748, from the header pgcdc-lsn of a record."),
        ], "Rewind", () => command({ command: "rewind", lsn: lsn.value }, "The capture goes back."), "danger");
      }),
      action("Remove …", state, async () => {
        const keeps = h("input", { type: "checkbox", name: "keep_slot" });
        const typed = h("input", { name: "name", required: true, pattern: name, autocomplete: "off" });
        const done = await formDialog(`Remove ${name}?`, [
          h("p", {}, "The capture ends, and its slot and publication are dropped in the database. Changes from now on are not captured; a new capture begins with a snapshot. Topics and their records stay."),
          h("label", { class: "inline" }, keeps, "Keep slot and publication (the database then retains WAL for them)"),
          field("Type the name of the capture", typed),
        ], "Remove", () => remove(`${path}${query({ keep_slot: keeps.checked ? "true" : "" })}`), "danger");
        if (done) {
          toast(done.detail);
          location.hash = "#/captures";
        }
      }),
    ];
  }

  await Promise.all([refresh(), overTime.refresh()]);
  return { refresh: () => Promise.all([refresh(), overTime.refresh()]), title: name };
}

function drawProgress(part, row) {
  if (row.is_done) return badge("read", "good");
  return h("progress", { max: 1, value: part, "aria-label": `Snapshot of ${row.table}` });
}

function drawDefinition(capture) {
  const found = capture.definition;
  if (!found) return h("p", {}, "A newer release has written it; this node cannot show it.");
  return facts([
    ["Database", h("code", {}, found.dsn)],
    found.tables?.length ? ["Tables", found.tables.join(", ")] : null,
    found.channels?.length ? ["Channels", found.channels.join(", ")] : null,
    found.outbox ? ["Outbox", found.outbox] : null,
    ["Envelope", found.envelope ?? "pgcdc"],
    ["Slot", h("code", {}, found.slot || `dragoman_${capture.name.replaceAll("-", "_")}`)],
    ["Publication", h("code", {}, found.publication || `dragoman_${capture.name.replaceAll("-", "_")}`)],
    ["Runs as", capture.principal],
    capture.status.lsn ? ["Captured up to", h("code", {}, capture.status.lsn)] : null,
  ]);
}
