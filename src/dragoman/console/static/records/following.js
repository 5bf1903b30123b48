// A live tail that runs: what is shown, what is passed while it pauses, what is dropped, and what interrupts it.

import { fill } from "../dom.js";
import { number, plural } from "../format.js";
import { warning } from "../parts.js";
import { tail } from "./tail.js";

const RETRY_MS = 2000;
/** Characters of positions that fit into an address. A tail with more continues at the end. */
const POSITIONS_MAX = 16_000;
const COUNTED = ["scanned", "matched", "shown", "dropped", "unknown", "skipped"];
const PASSING = ["interrupted", "console_unreachable", "node_unreachable", "kafka_unreachable", "kafka_failed", "login_needed"];

export class Following {
  /** `list` gets the records, `counters` says how many there were, and `said` what interrupts the tail. */
  constructor(list, counters, said) {
    this.list = list;
    this.counters = counters;
    this.said = said;
    this.isPaused = false;
  }

  /**
   * Follow until the signal. Rejects with what ends the tail; what only interrupts it is said, and
   * the tail continues where it was. `onStart` gets what is followed.
   */
  async run(request, signal, onStart = () => {}) {
    this.isPaused = false;
    this.passed = 0;
    // Counters of the parts before, and the progress of the one that runs.
    this.before = this.progress = null;
    let positions = {};
    let isInterrupted = false;
    const on = {
      start: onStart,
      records: (records) => {
        if (this.isPaused) this.passed += records.length;
        else this.list.add(records);
      },
      progress: (progress) => {
        if (isInterrupted) fill(this.said);
        isInterrupted = false;
        positions = JSON.stringify(progress.positions).length <= POSITIONS_MAX ? progress.positions : {};
        this.progress = progress;
        this.report();
      },
    };
    do {
      try {
        await tail({ ...request, positions }, on, signal);
      } catch (error) {
        if (!passes(error)) throw error;
        isInterrupted = true;
        fill(this.said, interruption(error, positions));
      }
      this.before = added(this.before, this.progress);
      this.progress = null;
    } while (await paused(RETRY_MS, signal));
  }

  report() {
    const { scanned, matched, shown, dropped, unknown, skipped } = added(this.before, this.progress);
    const parts = [
      `${plural(matched, "record")} matched`, `${number(scanned)} scanned`, `${number(shown - this.passed)} shown`,
      dropped ? `${number(dropped)} dropped: too many to show` : "0 dropped",
      this.passed ? `${number(this.passed)} passed while paused` : null,
      unknown ? `${number(unknown)} unknown to the filter` : null,
      skipped ? `${number(skipped)} not looked at: the console could not keep up` : null,
    ];
    this.counters.textContent = parts.filter(Boolean).join(" · ");
  }
}

/** Counters of a tail with those from before it was interrupted. */
const added = (before, now) => Object.fromEntries(COUNTED.map((each) => [each, (before?.[each] ?? 0) + (now?.[each] ?? 0)]));

/** Whether a tail that has failed may go on later: what answers is away, or starts again. */
const passes = (error) => PASSING.includes(error.code) || error.status >= 502;

function interruption(error, positions) {
  const isKnown = Object.keys(positions).length > 0;
  const reason = `${error.message}${/[.?]$/.test(error.message) ? "" : "."}`;
  const rest = isKnown ? "with the records that are written meanwhile." : "at the end: records that are written meanwhile are not shown.";
  return warning(`${reason} The tail continues by itself, ${rest}`, "interrupted");
}

/** Resolves to whether the time has passed before the signal. */
function paused(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(true), ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(false); }, { once: true });
  });
}
