// What changes something: buttons that say why they are off, and dialogs that show first what would be done.

import { openDialog } from "./dialog.js";
import { fill, h } from "./dom.js";
import { copied, problem, toast } from "./parts.js";

export const READ_ONLY = "The console only reads until you log in.";

/** A button for a change; off, with the reason, while nothing may be changed. */
export function action(state, title, onclick, options = {}) {
  const why = state.isReadOnly ? READ_ONLY : options.why;
  return h("button", {
    class: options.isDangerous ? "danger-quiet" : options.isMain ? "primary" : null,
    type: "button", disabled: Boolean(why), title: why ?? options.help, "aria-label": options.label, onclick,
  }, title);
}

/** A row of actions; says once why they are off. */
export const toolbar = (state, ...actions) =>
  h("div", { class: "toolbar" }, actions, state.isReadOnly ? h("span", { class: "muted" }, READ_ONLY) : null);

/** A labelled input: `field("Name", input, "what it means")`. */
export const field = (title, input, help) => h("label", {}, title, input, help ? h("small", {}, help) : null);

/**
 * A change in two steps: a form, then what it would do, then the change itself.
 * `wanted()` reads the form; `check(wanted)` resolves to elements that show what would change, or
 * throws; `apply(wanted)` does it and resolves to what is said afterwards. `command(wanted)` is the
 * same on the command line. Without `fields` the check begins at once. With `typed`, this word has to be typed.
 */
export function change({ title, fields, wanted = () => ({}), check, apply, command, verb, typed, isDangerous = false, onDone = () => {} }) {
  const said = h("div", { class: "outcome", "aria-live": "polite" });
  const same = h("div", {});
  const word = typed ? h("input", { autocomplete: "off", spellcheck: "false", oninput: () => update() }) : null;
  const checkButton = h("button", { type: "submit" }, "Show what changes");
  const applyButton = h("button", { type: "button", class: isDangerous ? "danger" : "primary", disabled: true, onclick: run }, verb);
  let checked = null;
  let isBusy = false;
  const update = () => {
    applyButton.disabled = isBusy || checked === null || (typed !== undefined && word.value !== typed);
    checkButton.disabled = isBusy;
    // Without fields it is for another attempt only.
    checkButton.hidden = !fields && (isBusy || checked !== null);
  };
  const form = h("form", { oninput: (event) => { if (event.target !== word) forget(); }, onsubmit: (event) => { event.preventDefault(); look(); } },
    h("h2", {}, title), fields, said,
    typed ? field(`Type ${typed} to confirm`, word) : null, same,
    h("div", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
      checkButton, applyButton));
  const dialog = h("dialog", { "aria-label": title }, form);

  function forget() {
    checked = null;
    fill(said);
    update();
  }

  async function busy(work) {
    isBusy = true;
    update();
    try {
      await work();
    } catch (error) {
      checked = null;
      fill(said, problem(error));
    } finally {
      isBusy = false;
      update();
    }
  }

  function look() {
    return busy(async () => {
      const asked = wanted();
      fill(same, command ? copied("CLI", command(asked)) : null);
      fill(said, h("p", { class: "muted" }, "Checking…"));
      fill(said, await check(asked));
      checked = asked;
    });
  }

  function run() {
    return busy(async () => {
      const text = await apply(checked);
      dialog.close();
      toast(text ?? "Done.", "good");
      await onDone();
    });
  }

  openDialog(dialog);
  if (!fields) look();
  return dialog;
}

/** Rows of a difference: what, before, after. */
export function difference(titles, rows, most = 200) {
  return h("div", { class: "scroller short", tabindex: "0", role: "region", "aria-label": "What changes" },
    h("table", {}, h("thead", {}, h("tr", {}, titles.map((each) => h("th", { scope: "col" }, each)))),
      h("tbody", {}, rows.slice(0, most).map((row) => h("tr", {}, row.map((each) => h("td", {}, each)))),
        rows.length > most ? h("tr", {}, h("td", { colspan: titles.length, class: "muted" }, `and ${rows.length - most} more`)) : null)));
}
