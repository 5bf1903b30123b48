// Statistics of what a search finds: sizes, times, keys and partitions.

import { Chart } from "../chart.js";
import { fill, h } from "../dom.js";
import { download } from "../files.js";
import { bytes, compact, duration, number, time } from "../format.js";
import { card, figure } from "../parts.js";
import { Table } from "../table.js";
import { preview } from "./content.js";

export class Statistics {
  constructor(topic) {
    this.topic = topic;
    this.figures = h("div", { class: "figures" });
    this.times = new Chart("Records by their time", compact);
    this.note = h("p", { class: "muted" });
    this.sizes = new Table([
      { name: "of", title: "Bytes of", of: (row) => row.of },
      ...["least", "median", "average", "p95", "p99", "most", "total"].map((name) =>
        ({ name, title: TITLES[name], of: (row) => row[name], isNumber: true, show: bytes, help: HELP[name] })),
    ], { label: "Sizes", key: (row) => row.of, empty: "No record has a key or a value." });
    this.keys = new Table([
      { name: "key", title: "Key", of: (row) => row.text, show: (_, row) => preview(row.key) },
      { name: "records", title: "Records", of: (row) => row.records, isNumber: true, show: number },
      { name: "share", title: "Share", of: (row) => row.share, isNumber: true, show: percent },
    ], { label: "Most frequent keys", order: { name: "records", isDown: true }, key: (row) => row.text, empty: "No record has a key." });
    this.keysNote = h("p", { class: "muted" });
    this.partitions = new Table([
      { name: "partition", title: "Partition", of: (row) => row.partition, isNumber: true },
      { name: "records", title: "Records", of: (row) => row.records, isNumber: true, show: number },
      { name: "share", title: "Share", of: (row) => row.share, isNumber: true, show: percent },
      { name: "bytes", title: "Bytes", of: (row) => row.bytes, isNumber: true, show: bytes, help: "Of keys and values" },
      { name: "first", title: "First offset", of: (row) => row.first_offset, isNumber: true, show: number },
      { name: "last", title: "Last offset", of: (row) => row.last_offset, isNumber: true, show: number },
    ], { label: "Partitions", key: (row) => row.partition, empty: "No record was found." });
    this.save = h("button", { type: "button", onclick: () => download(`${topic}-statistics.json`, "application/json", JSON.stringify(this.shown, null, 2)) }, "Download as JSON");
    this.element = h("div", { hidden: true }, this.figures,
      card("When", this.note, h("div", { class: "wide-chart" }, this.times.element)), card("Sizes", this.sizes.element),
      card("Most frequent keys", this.keysNote, this.keys.element), card("Partitions", this.partitions.element), h("p", {}, this.save));
  }

  clear() {
    this.show(EMPTY);
    this.save.disabled = true;
  }

  show(line) {
    this.shown = line;
    this.save.disabled = false;
    const about = line.is_estimate ? "≈ " : "";
    fill(this.figures,
      figure("Records", number(line.records)),
      figure("Different keys", `${about}${number(line.distinct_keys)}`, `${number(line.without_key)} without a key`),
      figure("Different values", `${about}${number(line.distinct_values)}`, `${number(line.without_value)} tombstones`),
      figure("With headers", number(line.with_headers)),
      figure("First", time(line.first_ms), "by the records' times"),
      figure("Last", time(line.last_ms), line.first_ms === null ? null : `${duration((line.last_ms - line.first_ms) / 1000)} later`));
    this.drawTimes(line);
    this.sizes.show([["Keys", line.keys], ["Values", line.values]].filter(([, sizes]) => sizes).map(([of, sizes]) => ({ of, ...sizes })));
    const share = (count) => (line.records ? count / line.records : 0);
    this.keys.show(line.frequent_keys.map((each) => ({ ...each, text: each.key.text, share: share(each.records) })));
    this.keysNote.hidden = !line.frequent_too_small_by;
    this.keysNote.textContent = `There are too many keys to count each: a key may have up to ${number(line.frequent_too_small_by)} records more than shown.`;
    this.partitions.show(line.partitions.map((each) => ({ ...each, share: share(each.records) })));
  }

  drawTimes({ periods, period_ms: length, without_time: without }) {
    const notes = [];
    if (periods.length) notes.push(`Each point is ${duration(length / 1000)}.`);
    if (without) notes.push(`${number(without)} records have no time.`);
    this.note.textContent = notes.join(" ") || "No record has a time.";
    this.times.element.hidden = !periods.length;
    if (!periods.length) return;
    const counts = new Map(periods.map((each) => [each.begin_ms, each.records]));
    const times = [];
    // One more on both sides: a single period is drawn as a peak.
    for (let at = periods[0].begin_ms - length; at <= periods.at(-1).begin_ms + length; at += length) times.push(at);
    this.times.draw(times, [{ name: "records", values: times.map((each) => counts.get(each) ?? 0) }]);
  }
}

const EMPTY = {
  records: 0, without_key: 0, without_value: 0, with_headers: 0, without_time: 0, first_ms: null, last_ms: null, keys: null, values: null,
  distinct_keys: 0, distinct_values: 0, is_estimate: false, frequent_keys: [], frequent_too_small_by: 0, period_ms: 0, periods: [], partitions: [],
};
const TITLES = { least: "Least", median: "Median", average: "Average", p95: "p95", p99: "p99", most: "Most", total: "In all" };
const HELP = { median: "Half are not larger", p95: "95 of 100 are not larger", p99: "99 of 100 are not larger" };
const percent = (part) => `${number(part * 100)} %`;
