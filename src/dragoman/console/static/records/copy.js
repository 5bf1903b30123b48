// Copying what a search finds to another topic: what would be copied, then the copy and its progress.

import { lines } from "../api.js";
import { choice, field, openDialog } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { bytes, number, plural } from "../format.js";
import { copied, facts, problem } from "../parts.js";

const RECORDS_MAX = 1_000_000;

/** `request()` gives the search of the page; it throws if its form has a mistake. `command(to)` does the same without its filter. */
export function askCopy(topic, request, command) {
  const to = h("input", { required: true, autocomplete: "off", spellcheck: "false" });
  const partition = choice([["same", "the one with the same number"], ["key", "the one that its key chooses"]]);
  const said = h("div", { class: "outcome", "aria-live": "polite" });
  const same = h("div", {});
  const check = h("button", { type: "submit" }, "Show what changes");
  const copy = h("button", { type: "button", class: "primary", disabled: true, onclick: () => run(false) }, "Copy");
  const stop = h("button", { type: "button", hidden: true, onclick: () => running?.abort() }, "Stop");
  const close = h("button", { type: "button", onclick: () => dialog.close() }, "Close");
  let running = null;
  let resume = null;
  const form = h("form", { oninput: () => forget(), onsubmit: (event) => { event.preventDefault(); run(true); } },
    h("h2", {}, `Copy records of ${topic}`),
    h("p", {}, "What the search on this page finds is written to another topic, with its keys, values, headers and times. Records that are copied twice are there twice."),
    field("To the topic", to, "It has to exist: the page of a topic has Create similar."),
    field("Partition of each record", partition), said, same,
    h("div", { class: "actions" }, close, stop, check, copy));
  const dialog = h("dialog", { "aria-label": `Copy records of ${topic}` }, form);
  dialog.addEventListener("close", () => running?.abort());

  function forget() {
    resume = null;
    copy.disabled = true;
    copy.textContent = "Copy";
    fill(said);
    fill(same);
  }

  function busy(isBusy) {
    to.disabled = partition.disabled = check.disabled = isBusy;
    stop.hidden = !isBusy;
    if (isBusy) copy.disabled = true;
  }

  async function run(isTrial) {
    running = new AbortController();
    busy(true);
    let start = null;
    let written = null;
    let progress = null;
    let end = null;
    let failure = null;
    try {
      const asked = { ...request(), to: to.value.trim(), partition: partition.value, limit: RECORDS_MAX, validate_only: isTrial, continue: resume };
      for await (const line of lines("records/copy", asked, running.signal)) {
        if (line.type === "start") start = line;
        else if (line.type === "copied") written = line;
        else if (line.type === "progress") { progress = line; fill(said, counted(written, progress, isTrial, "…")); }
        else if (line.type === "problem") failure = line;
        else end = line;
      }
    } catch (error) {
      if (error.name !== "AbortError") failure = { code: error.code, message: error.message };
    }
    running = null;
    busy(false);
    if (isTrial) {
      fill(same, copied("CLI", command(to.value.trim())));
      copy.disabled = !end || !written.records;
    } else {
      resume = (end ?? failure)?.continue ?? (end || !progress ? null : { positions: progress.at, ends: start.ends });
      copy.textContent = resume ? "Continue" : "Copy";
      copy.disabled = !resume;
    }
    fill(said, failure ? problem({ code: failure.code, message: failure.detail ?? failure.message }) : null,
      written ? counted(written, progress, isTrial, why(end, isTrial)) : null);
  }

  openDialog(dialog);
}

const BUDGETS = { records: "the limit of records scanned", bytes: "the limit of bytes", seconds: "the limit of seconds" };

function why(end, isTrial) {
  if (!end) return isTrial ? "; stopped before all was looked at" : "; stopped. What was copied stays there.";
  if (end.reason === "end") return isTrial ? "; all was looked at" : "; this is all";
  return end.reason === "limit" ? `; at most ${number(RECORDS_MAX)} are copied at once` : `; ${BUDGETS[end.budget]} is reached`;
}

function counted(written, progress, isTrial, suffix) {
  const verb = isTrial ? "would be copied" : "copied";
  const partitions = Object.entries(written.partitions);
  return [h("p", {}, h("b", {}, plural(written.records, "record")), ` of ${bytes(written.bytes)} ${verb}, ${number(progress.scanned)} scanned`, suffix),
    progress.total ? h("progress", { max: progress.total, value: progress.done, "aria-label": "Offsets that are done" }) : null,
    partitions.length ? facts(partitions.slice(0, 20).map(([index, count]) => [`Partition ${index}`, number(count)])) : null,
    partitions.length > 20 ? h("p", { class: "muted" }, `and ${partitions.length - 20} more partitions`) : null];
}
