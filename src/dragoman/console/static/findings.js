// What the doctor has found about a database.

import { h } from "./dom.js";
import { badge } from "./parts.js";

const LEVELS = { ok: "good", warning: "warn", problem: "bad" };

/** What the doctor has found, worst first, each with its remedy. */
export function drawFindings(items) {
  const order = ["problem", "warning", "ok"];
  const sorted = [...items].sort((one, other) => order.indexOf(one.level) - order.indexOf(other.level));
  return h("ul", { class: "findings" }, sorted.map((each) =>
    h("li", {}, badge(each.level, LEVELS[each.level]), " ", each.what, each.remedy ? h("pre", {}, each.remedy) : null)));
}
