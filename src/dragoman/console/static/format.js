// Numbers, sizes and times as people read them.

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
export const NOTHING = "–";

export const isMissing = (value) => value === null || value === undefined || Number.isNaN(value);

export function number(value) {
  return isMissing(value) ? NOTHING : NUMBER.format(value);
}

/** 12.3K: for places where a whole number has no room. */
export function compact(value) {
  if (isMissing(value)) return NOTHING;
  return Math.abs(value) < 10_000 ? NUMBER.format(value) : COMPACT.format(value);
}

export function bytes(value) {
  if (isMissing(value)) return NOTHING;
  let unit = 0;
  let left = value;
  while (Math.abs(left) >= 1024 && unit < UNITS.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${unit ? left.toFixed(left < 10 ? 1 : 0) : Math.round(left)} ${UNITS[unit]}`;
}

export const rate = (show) => (value) => (isMissing(value) ? NOTHING : `${show(value)}/s`);

export function duration(seconds) {
  if (isMissing(seconds)) return NOTHING;
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const parts = [];
  let left = Math.round(seconds);
  for (const [name, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count) parts.push(`${count} ${name}`);
  }
  // From ten of the largest unit on, the next one says little, and takes the room of a card.
  return parts.slice(0, Number.parseInt(parts[0], 10) < 10 ? 2 : 1).join(" ");
}

const pad = (value, width = 2) => String(value).padStart(width, "0");

/** A time of day, with the day if it is another one than today. */
export function time(ms, withMs = false) {
  if (isMissing(ms)) return NOTHING;
  const at = new Date(ms);
  const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  const shown = withMs ? `${clock}.${pad(at.getMilliseconds(), 3)}` : clock;
  if (at.toDateString() === new Date().toDateString()) return shown;
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${shown}`;
}

/** The sum of what is known. */
export const sum = (values) => values.reduce((one, other) => one + (other ?? 0), 0);

/** "Node 2 does not answer" */
export const unanswered = (nodes) => (nodes.length === 1 ? `Node ${nodes[0]} does not answer` : `Nodes ${nodes.join(", ")} do not answer`);

/** "1 topic", "2 topics" */
export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;
