// Series of the nodes' histories: rates, sizes and lag over time.

import { post } from "./api.js";
import { isMissing } from "./format.js";

/** The least that a chart of a node without a longer history shows. */
const SHOWN_MS_MIN = 5 * 60 * 1000;

/** Ask for figures: `{names, topics, groups, from, per_node}`. */
export async function figuresOf(wanted, signal) {
  return new Figures(await post("api/v1/figures/query", wanted, signal));
}

/** The newest values only. Two samples are asked for, as the newest may not be there yet. */
export const newestOf = (names, signal, more = {}) => figuresOf({ names, from: "-45s", step_s: 15, ...more }, signal);

class Figures {
  constructor(found) {
    const begin = beginOf(found);
    this.times = found.times.slice(begin);
    this.series = found.series.map((each) => ({ ...each, values: each.values.slice(begin) }));
    this.leftOut = found.left_out;
    this.unreachable = found.unreachable;
  }

  /** Those whose label has this value. */
  where(label, value) {
    return new Figures({ times: this.times, series: this.series.filter((each) => each.labels[label] === value), left_out: this.leftOut, unreachable: this.unreachable });
  }

  of(name) {
    return this.series.filter((each) => each.name === name);
  }

  /** The newest value of each series of a name, added up by a label or by node. */
  newest(name, label) {
    const found = new Map();
    for (const each of this.of(name)) {
      const value = each.values.findLast((one) => !isMissing(one));
      if (isMissing(value)) continue;
      const key = label === "node" ? each.node : (each.labels[label] ?? "");
      found.set(key, (found.get(key) ?? 0) + value);
    }
    return found;
  }

  /** Columns for a chart: one for each value of a label, the largest first, at most `most`. */
  by(name, label, most = 8) {
    const sums = new Map();
    for (const each of this.of(name)) {
      const key = label === "node" ? `node ${each.node}` : (each.labels[label] ?? name);
      const column = sums.get(key);
      sums.set(key, column ? column.map((value, index) => added(value, each.values[index])) : each.values);
    }
    const weight = (values) => values.reduce((one, value) => one + (value ?? 0), 0);
    return [...sums]
      .sort((one, other) => weight(other[1]) - weight(one[1]))
      .slice(0, most)
      .map(([key, values]) => ({ name: key, values }));
  }

  /** One column: the sum of all series of a name. */
  sum(name, title) {
    const columns = this.of(name).map((each) => each.values);
    if (!columns.length) return { name: title, values: this.times.map(() => null) };
    return { name: title, values: columns.reduce((one, other) => one.map((value, index) => added(value, other[index]))) };
  }
}

/** The first sample to show: a history that is shorter than the range fills the chart. */
function beginOf({ times, series }) {
  const known = series.map((each) => each.values.findIndex((value) => !isMissing(value))).filter((index) => index >= 0);
  const newest = times.findLastIndex((ms) => ms <= times.at(-1) - SHOWN_MS_MIN);
  return Math.max(0, Math.min(newest, ...known));
}

const added = (one, other) => (isMissing(one) ? other : isMissing(other) ? one : one + other);
