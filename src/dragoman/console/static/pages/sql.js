// SQL over topics, in a process of its own.

import { Problem, get, lines } from "../api.js";
import { equivalent, shell } from "../commands.js";
import { choice, field } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { download } from "../files.js";
import { bytes, compact, duration, number, plural } from "../format.js";
import { card, link, problem, to, warning } from "../parts.js";
import { Table } from "../table.js";

const quoted = (name) => `"${name.replaceAll('"', '""')}"`;
const SAMPLES = [
  ["Newest records", (topic) => `select partition, "offset", timestamp, key, value\nfrom ${topic}\norder by timestamp desc\nlimit 50`],
  ["Records a minute", (topic) => `select date_trunc('minute', timestamp) as minute, count(*) as records\nfrom ${topic}\ngroup by all\norder by minute desc`],
  ["Most frequent keys", (topic) => `select key, count(*) as records\nfrom ${topic}\ngroup by key\norder by records desc\nlimit 20`],
  ["A field of JSON", (topic) => `select value->>'$.id' as id, value\nfrom ${topic}\nwhere json_valid(value)\nlimit 50`],
  ["Skew of partitions", (topic) => `select partition, count(*) as records, min(timestamp) as first, max(timestamp) as last\nfrom ${topic}\ngroup by partition\norder by partition`],
];

export async function show(place, { state, search, signal }) {
  const [abilities, topics] = await Promise.all([get("sql", signal), get("lists/topics", signal)]);
  // Kafka's protocol, by which queries read, has no other names.
  const names = topics.items.filter((each) => !each.internal && /^[\w.-]+$/.test(each.name)).map((each) => each.name);
  const first = search.get("topic") ?? names[0] ?? "orders";
  const query = h("textarea", { class: "mono query", rows: 8, spellcheck: "false", "aria-label": "Query", "aria-describedby": "query-error" });
  query.value = search.get("q") ?? SAMPLES[0][1](quoted(first));
  const records = choice([["20000", "20,000 records"], ["200000", "200,000 records"], ["1000000", "1 million records"], [String(abilities.records_max), `${compact(abilities.records_max)} records`]], "200000", { name: "records" });
  const side = choice([["newest", "the newest"], ["oldest", "the oldest"]], "newest", { name: "side" });
  const seconds = choice([["10", "10 s"], ["60", "1 min"], [String(abilities.seconds_max), duration(abilities.seconds_max)]], "60", { name: "seconds" });
  const rows = choice([["100", "100"], ["1000", "1,000"], [String(abilities.rows_max), number(abilities.rows_max)]], "1000", { name: "rows" });
  const topic = choice(names, first, { name: "topic", "aria-label": "Topic of the samples" });
  const run = h("button", { class: "primary", disabled: Boolean(abilities.obstacle), title: abilities.obstacle || "Ctrl+Enter" }, "Run");
  const stop = h("button", { type: "button", disabled: true, onclick: () => running?.abort() }, "Stop");
  const said = h("div", { id: "query-error", "aria-live": "polite" });
  const result = h("div", {});
  const same = h("div", {});
  let running = null;

  const drawSame = () => fill(same, equivalent(`dragoman sql ${shell(query.value)} -b ${state.bootstrap || "HOST:9092"}`, "POST sql (of the console)"));
  query.addEventListener("input", drawSame);
  query.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  const samples = h("div", { class: "bar", role: "group", "aria-label": "Sample queries" }, h("span", { class: "muted" }, names.length ? "Samples of" : "Samples"), names.length ? topic : null,
    SAMPLES.map(([title, make]) => h("button", { type: "button", onclick: () => { query.value = make(quoted(topic.value || first)); drawSame(); query.focus(); } }, title)));
  const form = h("form", { class: "card", onsubmit: (event) => { event.preventDefault(); if (!running && !abilities.obstacle) ask(); } },
    query, said,
    h("div", { class: "form" }, field("Read at most", records), field("Of them", side), field("Time", seconds), field("Rows shown", rows)),
    h("div", { class: "actions" }, stop, run));
  fill(place, h("h1", {}, "SQL"),
    h("p", { class: "muted" }, "Each topic is a table with the columns key, value, topic, partition, “offset”, timestamp, timestampType and headers. Names with dots or dashes stand in double quotes, times are in UTC. For everything, and for Avro and Protobuf: ", h("code", {}, "dragoman sql"), ", with Spark."),
    abilities.obstacle ? [problem({ message: abilities.obstacle }), abilities.command ? h("pre", {}, abilities.command) : null] : null,
    samples, form, result, same);
  drawSame();
  signal.addEventListener("abort", () => running?.abort());

  async function ask() {
    const body = { query: query.value, records: Number(records.value), side: side.value, seconds: Number(seconds.value), rows: Number(rows.value) };
    const started = performance.now();
    running = new AbortController();
    run.disabled = true;
    stop.disabled = false;
    const found = { names: [], types: [], rows: [], reading: [], end: null };
    const progress = h("p", { class: "muted", role: "status" }, "Starting…");
    fill(said);
    fill(result, progress);
    try {
      for await (const line of lines("sql", body, running.signal)) {
        if (line.type === "problem") throw placed(line, body.query);
        if (line.type === "columns") Object.assign(found, { names: line.names, types: line.types });
        if (line.type === "rows") found.rows.push(...line.rows);
        if (line.type === "reading") found.reading = line.topics;
        if (line.type === "end") found.end = line;
        progress.textContent = found.names.length ? `${plural(found.rows.length, "row")} so far` : readingText(found.reading);
      }
      fill(result, drawResult(found, (performance.now() - started) / 1000));
    } catch (error) {
      if (error.name === "AbortError") fill(result, h("p", { role: "status" }, "Stopped. The process of the query has ended."));
      else {
        fill(result);
        fill(said, problem(error), error.excerpt ? h("pre", {}, error.excerpt) : null);
        if (error.position !== undefined) {
          query.focus();
          query.setSelectionRange(error.position, error.position);
        }
      }
    } finally {
      running = null;
      run.disabled = false;
      stop.disabled = true;
    }
  }
  return { title: "SQL" };
}

const readingText = (topics) => topics.map((each) => `${each.topic}: ${plural(each.records, "record")} read, ${bytes(each.bytes)}`).join("; ") || "Starting…";

/** The line of the query with a mark under the place of the error. */
function placed(line, text) {
  const error = new Problem(400, line.code, line.detail);
  if (line.position === null) return error;
  const start = text.lastIndexOf("\n", line.position - 1) + 1;
  const end = text.indexOf("\n", line.position);
  const number_ = text.slice(0, start).split("\n").length;
  error.position = line.position;
  error.excerpt = `line ${number_}, column ${line.position - start + 1}\n${text.slice(start, end < 0 ? undefined : end)}\n${" ".repeat(line.position - start)}^`;
  return error;
}

function drawResult(found, elapsed) {
  const isNumber = (index) => /INT|DOUBLE|FLOAT|DECIMAL|REAL/.test(found.types[index]) && !found.types[index].includes("[");
  const table = new Table(
    [
      { name: "#", title: "#", help: "The place in the result", isNumber: true, of: (row) => row.number },
      ...found.names.map((title, index) => ({
        name: `${index}`, title, help: found.types[index], isNumber: isNumber(index), of: (row) => row.cells[index],
        show: (value) => (value === null ? h("span", { class: "muted" }, "null") : h("span", { class: "mono" }, String(value))),
      })),
    ],
    { label: "Result", isKept: false, search: (row) => row.cells.join(" "), placeholder: "Filter these rows", empty: "The result has no rows.", order: { name: "#", isDown: false } },
  );
  table.show(found.rows.map((cells, index) => ({ cells, number: index + 1 })));
  const partly = found.reading.filter((each) => each.is_part);
  const end = found.end;
  const named = (row) => Object.fromEntries(found.names.map((name, index) => [name, row[index]]));
  return card("Result",
    h("p", { role: "status" }, `${plural(end.rows, "row")} in ${duration(elapsed)}: ${duration(end.read_s)} to read, ${duration(end.total_s - end.read_s)} to run the query, the rest to start its process. ${bytes(end.memory_bytes)} of memory at most.`),
    found.reading.length ? h("p", { class: "muted" }, readingText(found.reading)) : null,
    partly.map((each) => warning([`Only ${plural(each.records, "record")} of `, link(to("topics", each.topic), each.topic), ` were read, of ${number(each.offsets)} offsets: counts and sums are of these.`], "part")),
    end.is_cut ? warning("The result has more rows than are shown.", "cut") : null,
    end.cut_cells ? warning(`${plural(end.cut_cells, "cell")} ${end.cut_cells === 1 ? "shows" : "show"} the beginning of ${end.cut_cells === 1 ? "its" : "their"} text only, also in files.`, "cut") : null,
    h("div", { class: "bar" },
      h("button", { type: "button", onclick: () => download("result.csv", "text/csv", csv(found)) }, "CSV"),
      h("button", { type: "button", onclick: () => download("result.json", "application/json", JSON.stringify(found.rows.map(named), null, 1)) }, "JSON")),
    table.element);
}

const cell = (value) => (value === null ? "" : /[",\n\r]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
const csv = (found) => [found.names, ...found.rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
