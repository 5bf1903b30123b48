// Lines over time, drawn as SVG: a few series, one axis, a reading under the pointer.

import { fill, h, svg } from "./dom.js";
import { csvButton } from "./files.js";
import { NOTHING, isMissing, time } from "./format.js";

const WIDTH = 640;
const WIDTH_MIN = 240;
const HEIGHT = 180;
const LEFT = 62;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 24;
const COLORS = 8;
/** Ends of an axis of seconds: halves of them are short to say, too. */
const SECONDS = [2, 4, 10, 20, 40, 60, 120, 240, 600, 1200, 2400, 3600, 7200, 14400, 43200, 86400];

/** A chart that is drawn again and again; the reading under the pointer stays. */
export class Chart {
  /** `show` formats values. `base` rounds the axis as they are shown: 1024 for bytes, 60 for seconds. */
  constructor(title, show, base = 10) {
    this.base = base;
    this.title = title;
    this.show = show;
    this.at = null;
    this.place = h("div", {});
    this.reading = h("div", { class: "reading muted" });
    this.file = csvButton(title, () => this.lines());
    this.file.hidden = true;
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, h("span", {}, title), this.file), this.place, this.reading);
    this.width = WIDTH;
    this.drawn = null;
    // Drawn as wide as it is shown, so that text keeps its size.
    new ResizeObserver(([{ contentRect: { width } }]) => {
      if (!width || Math.round(width) === this.width) return;
      this.width = Math.max(WIDTH_MIN, Math.round(width));
      if (this.drawn) this.draw(...this.drawn);
    }).observe(this.element);
  }

  /** What is drawn, as lines of a file. */
  lines() {
    const [times, series] = this.drawn;
    return [["time", ...series.map((each) => each.name)],
      ...times.map((ms, index) => [new Date(ms).toISOString(), ...series.map((each) => each.values[index])])];
  }

  /** `series`: [{name, values}] over `times` in ms; a missing value is a gap. */
  draw(times, series) {
    this.drawn = [times, series];
    const known = series.flatMap((each) => each.values).filter((each) => !isMissing(each));
    this.file.hidden = times.length < 2 || !known.length;
    if (this.file.hidden) {
      fill(this.place, h("p", { class: "muted" }, "No figures in this time; nodes take a sample every 15 seconds."));
      fill(this.reading);
      return;
    }
    const top = rounded(Math.max(...known) || 1, this.base);
    const width = this.width;
    const x = (ms) => LEFT + ((ms - times[0]) / (times.at(-1) - times[0])) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
    const last = times.length - 1;
    const lines = series.map((each, index) =>
      svg("path", { d: path(times, each.values, x, y), class: `line color-${index % COLORS}` }));
    const grid = [0, 0.5, 1].map((part) => [
      svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(part * top), y2: y(part * top), class: "grid" }),
      svg("text", { x: LEFT - 6, y: y(part * top) + 4, "text-anchor": "end" }, this.show(part * top)),
    ]);
    const ends = [0, 0.5, 1].map((part, index) => {
      const ms = times[0] + part * (times.at(-1) - times[0]);
      return svg("text", { x: x(ms), y: HEIGHT - 6, "text-anchor": ["start", "middle", "end"][index] }, time(ms));
    });
    const cursor = svg("line", { y1: TOP, y2: HEIGHT - BOTTOM, class: "cursor", visibility: "hidden" });
    const read = (index) => {
      const isChosen = this.at !== null;
      cursor.setAttribute("x1", x(times[index]));
      cursor.setAttribute("x2", x(times[index]));
      cursor.setAttribute("visibility", isChosen ? "visible" : "hidden");
      fill(this.reading, h("span", {}, time(times[index])),
        series.map((each, at) =>
          h("span", {}, h("i", { class: `dot color-${at % COLORS}` }), `${each.name}: `,
            h("b", {}, isMissing(each.values[index]) ? NOTHING : this.show(each.values[index])))));
    };
    const newest = () => Math.max(0, times.findLastIndex((_, index) => series.some((each) => !isMissing(each.values[index]))));
    const picture = svg("svg", {
      viewBox: `0 0 ${width} ${HEIGHT}`,
      role: "img",
      "aria-label": summary(this.title, times, series, this.show),
      onpointermove: (event) => {
        const bounds = picture.getBoundingClientRect();
        const at = ((event.clientX - bounds.left) / bounds.width) * width;
        this.at = Math.min(1, Math.max(0, (at - LEFT) / (width - LEFT - RIGHT)));
        read(Math.round(this.at * last));
      },
      onpointerleave: () => {
        this.at = null;
        read(newest());
      },
    }, grid, ends, lines, cursor);
    fill(this.place, picture);
    read(this.at === null ? newest() : Math.round(this.at * last));
  }
}

function path(times, values, x, y) {
  let text = "";
  let isBroken = true;
  values.forEach((value, index) => {
    if (isMissing(value)) {
      isBroken = true;
      return;
    }
    // A stroke without length is drawn as a dot: a sample between two gaps can be seen.
    text += `${isBroken ? "M" : "L"}${x(times[index]).toFixed(1)} ${y(value).toFixed(1)}${isBroken ? "h0" : ""}`;
    isBroken = false;
  });
  return text;
}

/** The end of an axis: not below the value, and easy to halve. */
function rounded(value, base) {
  if (base === 60 && value > 1) return SECONDS.find((each) => each >= value * 0.9999) ?? rounded(value / 86400, 10) * 86400;
  const unit = base === 1024 ? 1024 ** Math.max(0, Math.floor(Math.log(value) / Math.log(1024))) : 1;
  const power = 10 ** Math.floor(Math.log10(value / unit));
  return [1, 2, 4, 6, 10].map((each) => each * power * unit).find((each) => each >= value * 0.9999);
}

function summary(title, times, series, show) {
  const parts = series.map((each) => {
    const known = each.values.filter((value) => !isMissing(value));
    if (!known.length) return `${each.name}: no figures`;
    return `${each.name}: now ${show(known.at(-1))}, at most ${show(Math.max(...known))}`;
  });
  return `${title} from ${time(times[0])} to ${time(times.at(-1))}. ${parts.join("; ")}`;
}
