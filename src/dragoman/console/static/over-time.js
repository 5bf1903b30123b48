// Charts of the nodes' histories, beside each other.

import { chart } from "./chart.js";
import { fill, h } from "./dom.js";
import { figuresOf, rangeChoice } from "./figures.js";

/**
 * `charts`: [{title, figures: {name: title}, show, base}]. `labels` are those that a series must have;
 * `query` goes to the node as it is, such as {topics: [...]}.
 */
export class OverTime {
  constructor(charts, labels, signal, query = {}) {
    this.charts = charts;
    this.labels = Object.entries(labels);
    this.signal = signal;
    this.query = query;
    this.range = "-1h";
    const choice = rangeChoice((range) => {
      this.range = range;
      this.refresh().catch(() => {});
    });
    this.place = h("div", { class: "cards" });
    this.element = h("section", { "aria-label": "Over time" },
      h("div", { class: "heading" }, h("h2", {}, "Over time"), h("label", { class: "inline" }, "Charts of", choice)), this.place);
  }

  async refresh() {
    const names = this.charts.flatMap((each) => Object.keys(each.figures));
    const found = await figuresOf({ names, from: this.range, ...this.query }, this.signal);
    const mine = found.series.filter((each) => this.labels.every(([name, value]) => each.labels[name] === value));
    fill(this.place, this.charts.map((each) => {
      const lines = Object.entries(each.figures).flatMap(([name, title]) =>
        mine.filter((series) => series.name === name).map((series) => ({ name: title || Object.values(series.labels).join(" "), values: series.values })));
      return h("div", { class: "card" }, chart(each.title, found.times, lines, each.show, each.base, { isNarrow: this.charts.length > 2 }));
    }));
  }
}
