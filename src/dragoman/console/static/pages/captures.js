// Captures of databases, and one of them.

import { api, get, post, query, remove } from "../api.js";
import { Chart } from "../chart.js";
import { command, equivalent, option, request } from "../commands.js";
import { action, change, checkbox, field, toolbar } from "../dialogs.js";
import { drawn, fill, h } from "../dom.js";
import { figuresOf } from "../figures.js";
import { drawFindings } from "../findings.js";
import { bytes, duration, number, rate } from "../format.js";
import { OverTime } from "../over-time.js";
import { badge, card, facts, figure, link, problem, to, toast, warning } from "../parts.js";
import { Table } from "../table.js";
import { showWizard } from "./capture-wizard.js";

const KINDS = { streaming: "good", snapshotting: "good", starting: "plain", paused: "warn", waiting: "warn", failed: "bad", stopped: "bad" };
const OVER_TIME = ["capture_rows_per_second", "capture_retained_bytes", "capture_lag_bytes", "capture_lag_seconds"];
// What is left out of a status is at its default.
const STATUS = { problem: "", lsn: "", lag_bytes: -1, lag_s: -1, retained_bytes: -1, rows: 0, rows_per_s: 0, tables: [], warnings: [] };
const filled = (capture) => ({ ...capture, status: { ...STATUS, ...capture.status } });
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
      { name: "behind", title: "Behind", of: (row) => known(row.status.lag_s), isNumber: true, show: duration, help: "Age of the last captured change" },
      { name: "retained", title: "Retained WAL", of: (row) => known(row.status.retained_bytes), isNumber: true, show: bytes, help: "What the database keeps because of the slot" },
      { name: "problem", title: "Problem", of: (row) => row.status.problem || row.status.warnings[0] },
    ],
    { search: (row) => `${row.name} ${row.status.state} ${row.status.problem}`, placeholder: "Filter captures", label: "Captures", empty: "No database is captured yet. “Add a capture” leads through it." },
  );
  const add = h("button", { class: "primary", onclick: () => { location.hash = "#/captures/+add"; } }, "Add a capture");
  fill(place, h("h1", {}, "Captures"), h("p", { class: "muted" }, "Changes of PostgreSQL’s rows, as records of topics."), h("div", { class: "bar" }, add), table.element,
    equivalent(command(state, "cdc status"), request(state, "GET", "api/v1/captures")));
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
  const actions = h("div", {});
  const findings = h("div", {}, h("p", { class: "muted" }, "Not checked yet."));
  const progress = new Table(
    [
      { name: "table", title: "Table", of: (row) => row.table },
      { name: "done", title: "Snapshot", of: (row) => (row.is_done ? 1 : row.rows / Math.max(row.rows_expected, row.rows, 1)), show: drawProgress },
      { name: "rows", title: "Rows", of: (row) => row.rows ?? 0, isNumber: true, show: number },
      { name: "expected", title: "Of about", of: (row) => known(row.rows_expected ?? -1), isNumber: true, show: number },
      { name: "bytes", title: "Bytes", of: (row) => row.bytes ?? 0, isNumber: true, show: bytes },
      { name: "left", title: "Left", of: (row) => (row.is_done ? 0 : known(row.seconds_left ?? -1)), isNumber: true, show: duration },
    ],
    { label: "Snapshot by table", empty: "No snapshot is being made." },
  );
  const charts = {
    rows: new Chart("Rows captured", rate(number)),
    wal: new Chart("WAL", bytes, 1024),
    behind: new Chart("Behind the database", duration, 60),
  };
  const overTime = new OverTime("Over time", charts, async (from) => {
    const found = (await figuresOf({ names: OVER_TIME, from }, signal)).where("capture", name);
    charts.rows.draw(found.times, [found.sum("capture_rows_per_second", "rows")]);
    charts.wal.draw(found.times, [found.sum("capture_retained_bytes", "retained"), found.sum("capture_lag_bytes", "not captured yet")]);
    charts.behind.draw(found.times, [found.sum("capture_lag_seconds", "age of the last change")]);
  });
  const check = action(state, "Check the database", async () => {
    fill(findings, h("p", { class: "muted" }, "Asking the database…"));
    try {
      fill(findings, drawFindings((await post("api/v1/capture-checks", { name }, signal)).items));
    } catch (error) {
      fill(findings, problem(error));
    }
  });
  fill(place, h("p", { class: "crumb" }, link("#/captures", "Captures")), h("h1", {}, name), figures, wrong, actions,
    overTime.element,
    card("Snapshot by table", progress.element),
    h("div", { class: "cards" }, card("Definition", definition), card("What the database says", h("div", { class: "bar" }, check), findings)),
    equivalent(command(state, "cdc status", name), request(state, "GET", path)));

  let capture = null;
  async function refresh() {
    capture = filled(await get(path, signal));
    const status = capture.status;
    fill(figures,
      figure("State", badge(status.state, KINDS[status.state]), capture.node === null ? "no node runs it" : `on node ${capture.node}`),
      figure("Rows", number(status.rows_per_s), "per second"),
      figure("Captured", number(capture.rows), "rows since this node took over"),
      figure("Lag", bytes(known(status.lag_bytes)), `behind by ${duration(known(status.lag_s))}`),
      figure("Retained WAL", bytes(known(status.retained_bytes)), "kept for the slot"),
      figure("Restarts", number(capture.restarts)));
    fill(wrong, status.problem ? problem({ message: status.problem }) : null, status.warnings.map((each) => warning(each)));
    progress.show(status.tables);
    drawn(definition, [capture.definition, capture.principal, status.lsn], () => drawDefinition(capture));
    drawn(actions, capture.paused, () => toolbar(state, drawActions()));
  }

  function drawActions() {
    const send = async (body, said) => {
      await post(`${path}/commands`, body, signal);
      return said;
    };
    return [
      capture.paused
        ? action(state, "Resume", async () => {
          toast(await send({ command: "resume" }, `${name} resumes where it stopped.`), "good");
          await refresh();
        }, { isMain: true })
        : action(state, "Pause", () => pause(send)),
      action(state, "Snapshot", () => snapshot(send)),
      action(state, "Rewind", () => rewind(send), { isDangerous: true }),
      action(state, "Remove", () => removeCapture(), { isDangerous: true }),
    ];
  }

  function pause(send) {
    change({
      title: `Pause ${name}`,
      fields: h("p", {}, "Nothing is captured until it resumes. The slot stays, so the database keeps its WAL meanwhile: watch the disk of the database."),
      apply: () => send({ command: "pause" }, `${name} is paused.`),
      command: () => command(state, "cdc pause", name),
      verb: "Pause", onDone: refresh,
    });
  }

  function snapshot(send) {
    const tables = h("input", { name: "tables", placeholder: "public.orders, public.items" });
    const chosen = () => tables.value.split(",").map((each) => each.trim()).filter(Boolean);
    change({
      title: `Read tables of ${name} again`,
      fields: [
        h("p", {}, "The rows are sent once more, beside the stream of changes. Nothing that was captured is removed, and consumers see the rows as SNAPSHOT events."),
        field("Tables", tables, "Separated by commas; empty: all."),
      ],
      apply: () => send({ command: "snapshot", tables: chosen() }, "The snapshot begins."),
      command: () => command(state, "cdc snapshot", name, option("--tables", chosen().join(","))),
      verb: "Snapshot", onDone: refresh,
    });
  }

  function rewind(send) {
    const lsn = h("input", { name: "lsn", placeholder: "0/16B3748", required: true, pattern: "[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}" });
    change({
      title: `Capture changes of ${name} again`,
      fields: [
        h("p", {}, `Changes after this position are captured once more, so consumers get them twice. The slot must still retain it; all before ${capture.status.lsn || "the current position"} is captured.`),
        field("Position (LSN)", lsn, "Such as 0/16B3748, from the header pgcdc-lsn of a record."),
      ],
      apply: () => send({ command: "rewind", lsn: lsn.value }, "The capture goes back."),
      command: () => command(state, "cdc rewind", name, "--to", lsn.value || "LSN"),
      verb: "Rewind", isDangerous: true, onDone: refresh,
    });
  }

  function removeCapture() {
    const keeps = h("input", { type: "checkbox", name: "keep_slot" });
    change({
      title: `Remove ${name}`,
      fields: [
        h("p", {}, "The capture ends, and its slot and publication are dropped in the database. Changes from now on are not captured; a new capture begins with a snapshot. Topics and their records stay."),
        checkbox("Keep slot and publication (the database then retains WAL for them)", keeps),
      ],
      apply: async () => {
        const { detail } = await remove(`${path}${query({ keep_slot: keeps.checked ? "true" : "" })}`);
        location.hash = "#/captures";
        return detail;
      },
      command: () => command(state, "cdc remove", name, keeps.checked && "--keep-slot"),
      verb: "Remove", typed: name, isDangerous: true,
    });
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
