// Charts of the nodes' histories with a choice of their time, from minutes to a week.

import { choice } from "./dialogs.js";
import { h } from "./dom.js";
import { card } from "./parts.js";

const RANGES = [["-5m", "5 minutes"], ["-15m", "15 minutes"], ["-1h", "1 hour"], ["-6h", "6 hours"], ["-1d", "1 day"], ["-7d", "1 week"]];

export class OverTime {
  /** `draw(from)` asks for the figures since then and draws the charts; what it resolves to is said above them. */
  constructor(title, charts, draw) {
    this.draw = draw;
    this.from = choice(RANGES, "-1h", { "aria-label": "Time shown", onchange: () => this.refresh().catch(() => {}) });
    this.note = h("p", { class: "muted", hidden: true });
    this.element = card(null,
      h("div", { class: "heading" }, h("h2", {}, title), h("label", { class: "inline" }, "Charts of", this.from)), this.note,
      h("div", { class: "charts" }, Object.values(charts).map((each) => each.element)));
  }

  async refresh() {
    const text = await this.draw(this.from.value);
    this.note.hidden = !text;
    this.note.textContent = text ?? "";
  }
}
