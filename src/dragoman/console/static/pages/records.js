// The records of a topic: search, live tail, one record, export and produce.

import { api, lines, query } from "../api.js";
import { equivalent, request, shell } from "../commands.js";
import { fill, h } from "../dom.js";
import { download } from "../files.js";
import { bytes, duration, number, plural } from "../format.js";
import { problem, to, toast, warning } from "../parts.js";
import { askCopy } from "../records/copy.js";
import { Details } from "../records/details.js";
import { Form } from "../records/form.js";
import { askMessage } from "../records/find.js";
import { Following } from "../records/following.js";
import { RecordList } from "../records/list.js";
import { askRecord } from "../records/produce.js";
import { Saved } from "../records/saved.js";
import { Statistics } from "../records/statistics.js";

const ROWS_MAX = 1000;
const TAIL_ROWS_MAX = 500;
const EXPORT_MAX = 100_000;

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
      find: button("Find by key or id", () => this.find()),
      statistics: button("Statistics", () => this.count()),
      jsonl: button("Export JSON lines", () => this.export("jsonl")),
      csv: button("Export CSV", () => this.export("csv")),
      copy: button("Copy to a topic", () => askCopy(topic, () => this.question(), (to) => `${this.consume} | dragoman produce ${shell(to)} --json --bootstrap ${shell(this.state.bootstrap || "HOST:PORT")}`)),
      produce: button("Produce", () => askRecord(topic, (written) => this.written(written))),
    };
    this.saved = new Saved(topic, () => this.address(null));
    this.form = new Form(topic, given, { onSearch: () => this.search(), buttons: Object.values(this.buttons), saved: this.saved.element });
    this.bar = h("progress", { max: 1, value: 0, "aria-label": "Offsets that were scanned" });
    this.counters = h("p", { class: "counters", role: "status" });
    this.said = h("div", {});
    this.list = new RecordList((record) => this.open(record.partition, record.offset), ROWS_MAX);
    this.following = new Following(this.list, this.counters, this.said);
    this.details = new Details(topic, (partition, offset) => this.address(`${partition}:${offset}`), () => this.closed());
    this.statistics = new Statistics(topic);
    this.same = h("div", {});
    this.element = h("div", { class: "records-page" }, this.form.element, this.said,
      h("div", { class: "bar" }, this.bar, this.counters, h("span", { class: "grow" }), this.list.order),
      h("div", { class: "with-panel" }, this.list.element, this.details.element), this.statistics.element, this.same);
    this.opening = given.get("record");
    for (const each of [this.buttons.produce, this.buttons.copy]) {
      each.disabled = state.isReadOnly;
      each.title = state.isReadOnly ? "Log in to write records" : "";
    }
    this.isTailWanted = given.get("tail") === "1";
    this.isCountWanted = given.get("statistics") === "1";
    this.allow("idle");
  }

  begin() {
    const match = /^(\d+):(\d+)$/.exec(this.opening ?? "");
    if (match) this.open(Number(match[1]), Number(match[2]));
    if (this.isTailWanted) this.tail();
    else if (this.isCountWanted) this.count();
    else this.search();
  }

  /** Show the list of records, or statistics in its place. */
  turn(isTail, isCount = false) {
    this.isTailWanted = isTail;
    this.isCountWanted = isCount;
    this.statistics.element.hidden = !isCount;
    this.list.element.hidden = this.list.order.hidden = isCount;
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
    return `${to("topics", this.topic, "records")}${query({ ...this.form.changed(), tail: this.isTailWanted ? 1 : null, statistics: this.isCountWanted ? 1 : null, record })}`;
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

  find() {
    askMessage(this.topic, (wanted) => {
      this.form.set({ until: "", partitions: "", limit: "10", ...wanted });
      this.search();
    });
  }

  /** The search as it stands in the form, without what is made of it. */
  question() {
    const { limit, ...asked } = this.form.request();
    return asked;
  }

  // ---- search

  async search(resume = null) {
    this.turn(false);
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

  // ---- statistics

  async count() {
    this.turn(false, true);
    const mine = this.start();
    this.statistics.clear();
    this.before = this.progress = this.resume = null;
    this.remember();
    this.allow("search");
    let end = null;
    try {
      const request = { ...this.form.request(), limit: 1, form: "statistics" };
      for await (const line of lines("records/search", request, mine.signal)) end = this.line(line) ?? end;
    } catch (error) {
      if (error.name !== "AbortError") this.failed(error);
    }
    if (this.running && this.running !== mine) return;
    this.running = null;
    this.ended(end);
    this.resume = null;
    this.allow("idle");
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
      case "statistics":
        this.statistics.show(line);
        return null;
      case "progress":
        this.progress = line;
        this.total = summed(this.before, line);
        this.report();
        return null;
      case "problem":
        this.failed({ code: line.code, message: line.detail });
        return line;
      default:
        return line;
    }
  }

  report(suffix = "…") {
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
    if (this.progress) this.report(end ? (reasons[end.reason] ?? "") : "; stopped");
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
    this.turn(true);
    const mine = this.start();
    this.list.max = TAIL_ROWS_MAX;
    this.list.clear("Waiting for new records…");
    this.buttons.pause.textContent = "Pause";
    this.remember();
    this.allow("tail");
    let request;
    try {
      const { topic, ...common } = this.form.common();
      request = { topics: [topic], ...common };
    } catch (error) {
      this.running = null;
      this.failed(error);
      this.allow("idle");
      return;
    }
    mine.signal.addEventListener("abort", () => this.allow("idle"));
    this.following.run(request, mine.signal).catch((error) => {
      mine.abort();
      if (error.name === "AbortError") return;
      this.running = null;
      this.failed(error);
    });
  }

  pause() {
    this.following.isPaused = !this.following.isPaused;
    this.buttons.pause.textContent = this.following.isPaused ? "Resume" : "Pause";
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
    this.consume = `dragoman consume ${shell(this.topic)} ${options.join(" ")}`;
    fill(this.same, equivalent(this.consume, request(this.state, "GET", `${api("topics", this.topic, "partitions", partitions[0] ?? 0, "records")}?last=50&values=json`)));
  }
}

const COUNTED = ["scanned", "matched", "unknown", "skipped", "bytes", "done", "total", "elapsed_s"];

/** The counters of a search and of those that it continues; the offsets to do are those of the first. */
function summed(before, line) {
  if (!before) return line;
  const sum = Object.fromEntries(COUNTED.map((each) => [each, before[each] + line[each]]));
  return { ...sum, total: Math.max(before.total, before.done + line.total) };
}
