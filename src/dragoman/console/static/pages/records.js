// The records of a topic: search, live tail, one record, export and produce.

import { api, lines, query } from "../api.js";
import { equivalent, request, shell } from "../commands.js";
import { fill, h } from "../dom.js";
import { bytes, duration, number, plural } from "../format.js";
import { download, problem, to, toast, warning } from "../parts.js";
import { Details } from "../records/details.js";
import { Form } from "../records/form.js";
import { RecordList } from "../records/list.js";
import { askRecord } from "../records/produce.js";
import { tail } from "../records/tail.js";

const ROWS_MAX = 1000;
const TAIL_ROWS_MAX = 500;
const EXPORT_MAX = 100_000;
const RETRY_MS = 2000;

/** `head` is shown above. The address has the form, and the record that is open. */
export async function showRecords(place, head, topic, context) {
  const page = new RecordsPage(topic, context);
  fill(place, head, page.element);
  context.signal.addEventListener("abort", () => page.stop());
  page.begin();
  return { title: `${topic} · Records` };
}

class RecordsPage {
  constructor(topic, { search: given, state, signal }) {
    this.topic = topic;
    this.state = state;
    this.signal = signal;
    this.running = null;
    this.resume = null;
    const button = (text, onclick, kind = null) => h("button", { type: "button", class: kind, onclick }, text);
    this.buttons = {
      search: h("button", { class: "primary" }, "Search"),
      stop: button("Stop", () => this.stop()),
      more: button("Continue", () => this.search(this.resume)),
      tail: button("Live tail", () => this.tail()),
      pause: button("Pause", () => this.pause()),
      jsonl: button("Export JSON lines", () => this.export("jsonl")),
      csv: button("Export CSV", () => this.export("csv")),
      produce: button("Produce", () => askRecord(topic, () => this.written())),
    };
    this.form = new Form(topic, given, { onSearch: () => this.search(), buttons: Object.values(this.buttons) });
    this.bar = h("progress", { max: 1, value: 0, "aria-label": "Offsets that were scanned" });
    this.counters = h("p", { class: "counters", role: "status" });
    this.said = h("div", {});
    this.list = new RecordList((record) => this.open(record.partition, record.offset), ROWS_MAX);
    this.details = new Details(topic, (partition, offset) => this.address(`${partition}:${offset}`), () => this.closed());
    this.same = h("div", {});
    this.element = h("div", { class: "records-page" }, this.form.element, this.said,
      h("div", { class: "bar" }, this.bar, this.counters, h("span", { class: "grow" }), this.list.order),
      h("div", { class: "with-panel" }, this.list.element, this.details.element), this.same);
    this.opening = given.get("record");
    this.buttons.produce.disabled = state.isReadOnly;
    this.buttons.produce.title = state.isReadOnly ? "Log in to write records" : "";
    this.isTailWanted = given.get("tail") === "1";
    this.allow("idle");
  }

  begin() {
    const match = /^(\d+):(\d+)$/.exec(this.opening ?? "");
    if (match) this.open(Number(match[1]), Number(match[2]));
    if (this.isTailWanted) this.tail();
    else this.search();
  }

  /** Show the buttons that do something: while idle, searching, or following. */
  allow(what) {
    const isRunning = what !== "idle";
    this.buttons.stop.hidden = !isRunning;
    this.buttons.pause.hidden = what !== "tail";
    this.buttons.more.hidden = isRunning || !this.resume;
    this.buttons.tail.hidden = what === "tail";
    this.bar.hidden = what === "tail";
    this.buttons.jsonl.disabled = this.buttons.csv.disabled = isRunning;
  }

  address(record = this.details.opened) {
    return `${to("topics", this.topic, "records")}${query({ ...this.form.changed(), tail: this.isTailWanted ? 1 : null, record })}`;
  }

  remember() {
    history.replaceState(null, "", this.address());
    this.equivalents();
  }

  stop() {
    this.running?.abort();
    this.running = null;
  }

  start() {
    this.stop();
    this.running = new AbortController();
    fill(this.said);
    this.form.refuse(null);
    return this.running;
  }

  failed(error) {
    if (!this.form.refuse(error)) fill(this.said, problem(error));
  }

  // ---- search

  async search(resume = null) {
    this.isTailWanted = false;
    const mine = this.start();
    this.list.max = ROWS_MAX;
    if (!resume) this.list.clear("Searching…");
    this.before = resume ? this.total : null;
    this.remember();
    this.resume = null;
    this.allow("search");
    this.progress = null;
    let end = null;
    try {
      const request = { ...this.form.request(), continue: resume };
      for await (const line of lines("records/search", request, mine.signal)) end = this.line(line) ?? end;
    } catch (error) {
      if (error.name !== "AbortError") this.failed(error);
    }
    if (this.running && this.running !== mine) return;
    this.running = null;
    this.ended(end);
  }

  /** Take a line; gives the last one. */
  line(line) {
    switch (line.type) {
      case "start":
        this.ends = line.ends;
        this.positions = line.starts;
        if (line.notes.length) fill(this.said, line.notes.map((each) => warning(each, "note")));
        return null;
      case "record":
        this.list.add([line]);
        return null;
      case "progress":
        this.progress = line;
        this.total = summed(this.before, line);
        this.count();
        return null;
      case "problem":
        this.failed({ code: line.code, message: line.detail });
        return line;
      default:
        return line;
    }
  }

  count(suffix = "…") {
    const { scanned, done, total, matched, unknown, skipped, elapsed_s: elapsed } = this.total;
    this.bar.value = total ? done / total : 1;
    const parts = [
      `${plural(matched, "record")} found`, `${number(scanned)} scanned`, `${number(done)} of ${plural(total, "offset")} done`,
      bytes(this.total.bytes), duration(elapsed),
      unknown ? `${number(unknown)} unknown to the filter` : null, skipped ? `${number(skipped)} skipped` : null,
    ];
    this.counters.textContent = `${parts.filter(Boolean).join(" · ")}${suffix}`;
  }

  ended(end) {
    // A stopped search continues after its last progress; what is found twice is listed once.
    this.resume = end ? end.continue : this.progress && { positions: this.progress.at, ends: this.ends };
    const reasons = {
      end: "; all was looked at", limit: "; as many as were wanted",
      budget: { records: "; the limit of records scanned is reached", bytes: "; the limit of bytes is reached", seconds: "; the time is over" }[end?.budget],
    };
    if (this.progress) this.count(end ? (reasons[end.reason] ?? "") : "; stopped");
    if (!this.list.records.length) {
      this.list.say(end?.reason === "end" ? "No record fits." : this.progress ? "No record was found so far." : "Nothing was searched.");
    }
    this.allow("idle");
  }

  // ---- export

  async export(form) {
    const mine = this.start();
    this.allow("search");
    this.before = this.progress = this.resume = null;
    const parts = [];
    let end = null;
    try {
      const request = { ...this.form.request(), limit: EXPORT_MAX, form };
      for await (const line of lines("records/search", request, mine.signal)) {
        if (line.type === "lines") parts.push(line.text);
        else if (line.type !== "start") end = this.line(line) ?? end;
      }
      download(`${this.topic}.${form}`, form === "csv" ? "text/csv" : "application/x-ndjson", ...parts);
      toast(end?.reason === "end" ? "The export is complete" : "The export has what was found before a limit was reached", end?.reason === "end" ? "plain" : "bad");
    } catch (error) {
      if (error.name !== "AbortError") this.failed(error);
    }
    if (this.running && this.running !== mine) return;
    this.running = null;
    this.ended(end);
    this.resume = null;
    this.allow("idle");
  }

  // ---- tail

  tail() {
    this.isTailWanted = true;
    const mine = this.start();
    this.list.max = TAIL_ROWS_MAX;
    this.list.clear("Waiting for new records…");
    this.isPaused = false;
    this.passed = 0;
    this.followed = this.counted = null;
    this.buttons.pause.textContent = "Pause";
    this.remember();
    this.allow("tail");
    let request;
    try {
      request = { ...this.form.common() };
    } catch (error) {
      this.running = null;
      this.failed(error);
      this.allow("idle");
      return;
    }
    mine.signal.addEventListener("abort", () => this.allow("idle"));
    this.follow(request, mine);
  }

  /** Follow until the tail is stopped, or cannot go on. What interrupts it is said, and does not end it. */
  async follow(request, mine) {
    const on = {
      records: (records) => {
        if (this.isPaused) this.passed += records.length;
        else this.list.add(records);
      },
      progress: (counters) => {
        if (this.isInterrupted) fill(this.said);
        this.isInterrupted = false;
        this.followed = counters;
        this.countTail();
      },
    };
    for (;;) {
      try {
        await tail({ ...request, positions: this.followed?.positions ?? {} }, on, mine.signal);
      } catch (error) {
        if (error.name === "AbortError") return;
        if (!passes(error)) {
          mine.abort();
          this.running = null;
          this.failed(error);
          return;
        }
        this.isInterrupted = true;
        fill(this.said, interruption(error, this.followed));
      }
      this.counted = added(this.counted, this.followed);
      if (this.followed) this.followed = { positions: this.followed.positions };
      if (!(await paused(RETRY_MS, mine.signal))) return;
    }
  }

  countTail() {
    const { scanned, matched, shown, dropped, unknown, skipped } = added(this.counted, this.followed);
    const parts = [
      `${plural(matched, "record")} matched`, `${number(scanned)} scanned`, `${number(shown - this.passed)} shown`,
      dropped ? `${number(dropped)} dropped: too many to show` : "0 dropped",
      this.passed ? `${number(this.passed)} passed while paused` : null,
      unknown ? `${number(unknown)} unknown to the filter` : null,
      skipped ? `${number(skipped)} not looked at: the console could not keep up` : null,
    ];
    this.counters.textContent = parts.filter(Boolean).join(" · ");
  }

  pause() {
    this.isPaused = !this.isPaused;
    this.buttons.pause.textContent = this.isPaused ? "Resume" : "Pause";
  }

  // ---- one record

  open(partition, offset) {
    this.details.open(partition, offset, this.form.decode(), this.signal);
    this.list.mark(this.details.opened);
    this.remember();
  }

  closed() {
    const row = this.list.body.querySelector("tr.chosen");
    this.list.mark(null);
    if (row) this.list.focus(row.dataset.record);
    this.remember();
  }

  written() {
    if (!this.isTailWanted) this.search();
  }

  // ---- the same elsewhere

  equivalents() {
    const given = this.form;
    const options = [`--from ${shell(given.text("from"))}`];
    if (given.text("until")) options.push(`--until ${shell(given.text("until"))}`);
    if (this.isTailWanted) options.splice(0, options.length, "--from end --follow");
    let partitions = [];
    try {
      partitions = given.common().partitions;
    } catch {
      // The form says so when it is used.
    }
    options.push(...partitions.map((each) => `--partition ${each}`), "--json", `--bootstrap ${shell(this.state.bootstrap || "HOST:PORT")}`);
    fill(this.same, equivalent(`dragoman consume ${shell(this.topic)} ${options.join(" ")}`, request(this.state, "GET", `${api("topics", this.topic, "partitions", partitions[0] ?? 0, "records")}?last=50&values=json`)));
  }
}

const TAILED = ["scanned", "matched", "shown", "dropped", "unknown", "skipped"];

/** Counters of a tail with those from before it was interrupted. */
const added = (before, now) => Object.fromEntries(TAILED.map((each) => [each, (before?.[each] ?? 0) + (now?.[each] ?? 0)]));

const PASSING = ["interrupted", "console_unreachable", "node_unreachable", "kafka_unreachable", "kafka_failed", "login_needed"];

/** Whether a tail that has failed may go on later: what answers is away, or starts again. */
const passes = (error) => PASSING.includes(error.code) || error.status >= 502;

function interruption(error, followed) {
  const isKnown = Object.keys(followed?.positions ?? {}).length > 0;
  const reason = `${error.message}${/[.?]$/.test(error.message) ? "" : "."}`;
  const rest = isKnown ? "with the records that are written meanwhile." : "at the end: records that are written meanwhile are not shown.";
  return warning(`${reason} The tail continues by itself, ${rest}`, "interrupted");
}

/** Resolves to whether the time has passed before the signal. */
function paused(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(true), ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(false); }, { once: true });
  });
}

const COUNTED = ["scanned", "matched", "unknown", "skipped", "bytes", "done", "total", "elapsed_s"];

/** The counters of a search and of those that it continues; the offsets to do are those of the first. */
function summed(before, line) {
  if (!before) return line;
  const sum = Object.fromEntries(COUNTED.map((each) => [each, before[each] + line[each]]));
  return { ...sum, total: Math.max(before.total, before.done + line.total) };
}
