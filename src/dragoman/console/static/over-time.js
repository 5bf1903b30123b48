// Charts of the nodes' histories, for an hour or a week.

import { post } from "./api.js";
import { Chart } from "./chart.js";
import { h } from "./dom.js";

const SPANS = { "-1h": "1 hour", "-7d": "1 week" };

/**
 * `charts`: [{title, figures: {name: title}, show}]. `labels` are those that a series must have;
 * `query` goes to the node as it is, such as {topics: [...]}.
 */
export class OverTime {
  constructor(charts, labels, signal, query = {}) {
    this.charts = charts.map((each) => ({ ...each, chart: new Chart(each.title, each.show) }));
    this.labels = Object.entries(labels);
    this.signal = signal;
    this.query = query;
    this.span = "-1h";
    this.buttons = Object.entries(SPANS).map(([span, title]) =>
      h("button", { type: "button", "aria-pressed": String(span === this.span), onclick: () => this.choose(span) }, title));
    this.element = h("section", { "aria-label": "Over time" },
      h("div", { class: "bar", role: "group", "aria-label": "Time shown" }, this.buttons),
      h("div", { class: "cards" }, this.charts.map((each) => h("div", { class: "card" }, each.chart.element))));
  }

  async choose(span) {
    this.span = span;
    for (const [index, each] of Object.keys(SPANS).entries()) this.buttons[index].setAttribute("aria-pressed", String(each === span));
    await this.refresh().catch(() => {});
  }

  async refresh() {
    const names = this.charts.flatMap((each) => Object.keys(each.figures));
    const found = await post("api/v1/figures/query", { names, from: this.span, ...this.query }, this.signal);
    const mine = found.series.filter((each) => this.labels.every(([name, value]) => each.labels[name] === value));
    for (const each of this.charts) {
      const lines = Object.entries(each.figures).flatMap(([name, title]) =>
        mine.filter((series) => series.name === name).map((series) => ({ name: title || Object.values(series.labels).join(" "), values: series.values })));
      each.chart.draw(found.times, lines);
    }
  }
}
