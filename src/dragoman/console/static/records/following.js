// A live tail that runs: what is shown, what is passed while it pauses, and what is dropped.

import { number, plural } from "../format.js";
import { tail } from "./lines.js";

/** `list` gets the records, `counters` says how many there were. */
export class Following {
  constructor(list, counters) {
    this.list = list;
    this.counters = counters;
    this.isPaused = false;
  }

  /** `on` has `start`, and `problem`, which ends it. */
  run(request, on, signal) {
    this.isPaused = false;
    this.passed = 0;
    tail(request, {
      start: on.start ?? (() => {}),
      records: (records) => {
        if (this.isPaused) this.passed += records.length;
        else this.list.add(records);
      },
      progress: (counted) => this.report(counted),
      problem: on.problem,
    }, signal);
  }

  report({ scanned, matched, shown, dropped, unknown, skipped }) {
    const parts = [
      `${plural(matched, "record")} matched`, `${number(scanned)} scanned`, `${number(shown - this.passed)} shown`,
      `${number(dropped)} dropped: too many to show`,
      this.passed ? `${number(this.passed)} passed while paused` : null,
      unknown ? `${number(unknown)} unknown to the filter` : null,
      skipped ? `${number(skipped)} not looked at: the console could not keep up` : null,
    ];
    this.counters.textContent = parts.filter(Boolean).join(" · ");
  }
}
