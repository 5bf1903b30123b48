// Lines over time, drawn as SVG: a few series, one axis, a reading under the pointer.

import { fill, h, svg } from "./dom.js";
import { NOTHING, isMissing, time } from "./format.js";

const WIDTH = 640;
const HEIGHT = 180;
const LEFT = 62;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 24;
const COLORS = 8;

/** `series`: [{name, values}] over `times` in ms; a missing value is a gap. `show` formats values. */
export function chart(title, times, series, show) {
  const box = h("figure", { class: "chart" }, h("figcaption", {}, title));
  const known = series.flatMap((each) => each.values).filter((each) => !isMissing(each));
  if (times.length < 2 || !known.length) {
    box.append(h("p", { class: "muted" }, "No figures yet."));
    return box;
  }
  const top = rounded(Math.max(...known, 1e-9));
  const x = (ms) => LEFT + ((ms - times[0]) / (times.at(-1) - times[0])) * (WIDTH - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const lines = series.map((each, index) =>
    svg("path", { d: path(times, each.values, x, y), class: `line color-${index % COLORS}` }),
  );
  const grid = [0, 0.5, 1].map((part) => [
    svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(part * top), y2: y(part * top), class: "grid" }),
    svg("text", { x: LEFT - 6, y: y(part * top) + 4, "text-anchor": "end" }, show(part * top)),
  ]);
  const ends = [0, 0.5, 1].map((part, index) => {
    const ms = times[0] + part * (times.at(-1) - times[0]);
    const anchor = ["start", "middle", "end"][index];
    return svg("text", { x: x(ms), y: HEIGHT - 6, "text-anchor": anchor }, time(ms));
  });
  const cursor = svg("line", { y1: TOP, y2: HEIGHT - BOTTOM, class: "cursor", visibility: "hidden" });
  const reading = h("div", { class: "reading muted" });
  const last = times.length - 1;
  const read = (index) => {
    fill(
      reading,
      h("span", {}, time(times[index])),
      series.map((each, at) =>
        h("span", {}, h("i", { class: `dot color-${at % COLORS}` }), `${each.name}: `,
          h("b", {}, isMissing(each.values[index]) ? NOTHING : show(each.values[index]))),
      ),
    );
  };
  const picture = svg(
    "svg",
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "img",
      "aria-label": summary(title, times, series, show),
      onpointermove: (event) => {
        const bounds = picture.getBoundingClientRect();
        const at = ((event.clientX - bounds.left) / bounds.width) * WIDTH;
        const part = (at - LEFT) / (WIDTH - LEFT - RIGHT);
        const index = Math.min(last, Math.max(0, Math.round(part * last)));
        cursor.setAttribute("x1", x(times[index]));
        cursor.setAttribute("x2", x(times[index]));
        cursor.setAttribute("visibility", "visible");
        read(index);
      },
      onpointerleave: () => {
        cursor.setAttribute("visibility", "hidden");
        read(last);
      },
    },
    grid,
    ends,
    lines,
    cursor,
  );
  read(last);
  box.append(picture, reading);
  return box;
}

function path(times, values, x, y) {
  let text = "";
  let isBroken = true;
  values.forEach((value, index) => {
    if (isMissing(value)) {
      isBroken = true;
      return;
    }
    text += `${isBroken ? "M" : "L"}${x(times[index]).toFixed(1)} ${y(value).toFixed(1)}`;
    isBroken = false;
  });
  return text;
}

function rounded(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value);
}

function summary(title, times, series, show) {
  const parts = series.map((each) => {
    const known = each.values.filter((value) => !isMissing(value));
    if (!known.length) return `${each.name}: no figures`;
    return `${each.name}: now ${show(known.at(-1))}, at most ${show(Math.max(...known))}`;
  });
  return `${title} from ${time(times[0])} to ${time(times.at(-1))}. ${parts.join("; ")}`;
}
