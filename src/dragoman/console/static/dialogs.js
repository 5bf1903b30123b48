// What changes something: buttons that say why they are off, and the dialog that each change asks in.

import { fill, h } from "./dom.js";
import { copied, explained, problem, toast } from "./parts.js";

const READ_ONLY = "The console only reads until you log in.";

/** A button for a change; off, with the reason, while nothing may be changed. */
export function action(state, title, run, options = {}) {
  const why = state.isReadOnly ? READ_ONLY : options.why;
  let isBusy = false;
  // It stays enabled while it is busy, so that it gets the focus back from a dialog.
  const press = async () => {
    if (isBusy) return;
    isBusy = true;
    try {
      await run();
    } catch (error) {
      if (error.name !== "AbortError") toast(explained(error), "bad");
    } finally {
      isBusy = false;
    }
  };
  return h("button", {
    class: options.isDangerous ? "danger-quiet" : options.isMain ? "primary" : null,
    type: "button", disabled: Boolean(why), title: why ?? options.help, "aria-label": options.label, onclick: press,
  }, title);
}

const note = (tag, state) => (state.isReadOnly ? h(tag, { class: "muted" }, READ_ONLY) : null);

/** Says once on a page why its buttons are off. */
export const readOnlyNote = (state) => note("p", state);

/** A row of actions; says once why they are off. */
export const toolbar = (state, ...actions) => h("div", { class: "toolbar", role: "group", "aria-label": "Actions" }, actions, note("span", state));

/** A labelled input: `field("Name", input, "what it means")`. */
export const field = (title, input, help) => h("label", {}, title, input, help ? h("small", {}, help) : null);

/** A labelled checkbox. */
export const checkbox = (title, input) => h("label", { class: "inline" }, input, title);

/** A choice of one; `options` are values, or pairs of a value and its title. */
export function choice(options, chosen, properties = {}) {
  return h("select", properties, options.map((each) => {
    const [value, title] = [each].flat();
    return h("option", { value, selected: value === chosen }, title ?? value);
  }));
}

/** What a check resolves to that has found nothing to apply: what is shown instead of the changes. */
export class Nothing {
  constructor(...shown) {
    this.shown = shown;
  }
}

/**
 * Asks for a change, and makes it. `fields` is the form, `wanted()` reads it. With `check`, the
 * change has two steps: `check(wanted)` resolves to elements that show what would change, or to
 * `Nothing`, or throws; only what was checked can be applied. Without `fields` the check begins at once. `apply(wanted)` makes the
 * change and resolves to what is said afterwards, if anything. `command(wanted)` is the same on the command line.
 * With `typed`, this word has to be typed.
 */
export function change({ title, fields, wanted = () => ({}), check, apply, command, verb, typed, isDangerous = false, onDone = () => {} }) {
  const said = h("div", { class: "outcome", "aria-live": "polite" });
  const same = h("div", {});
  const word = typed ? h("input", { name: "typed", autocomplete: "off", spellcheck: "false", oninput: () => update() }) : null;
  const checkButton = check ? h("button", { type: "submit" }, "Show what changes") : null;
  const applyButton = h("button", { type: check ? "button" : "submit", class: isDangerous ? "danger" : "primary", onclick: check ? run : null }, verb);
  let checked = check ? null : {};
  let isBusy = false;
  let hasFailed = false;
  const form = h("form", { oninput: (event) => { if (event.target !== word) forget(); }, onsubmit: submit },
    fields, said, typed ? field(`Type ${typed} to confirm`, word) : null, same,
    h("div", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), checkButton, applyButton));
  const dialog = open(title, form);

  function update() {
    applyButton.disabled = isBusy || checked === null || (typed !== undefined && word.value !== typed);
    if (!checkButton) return;
    checkButton.disabled = isBusy;
    // Without fields it is for another attempt only.
    checkButton.hidden = !fields && !hasFailed;
  }

  /** What was checked is no longer what the form says. */
  function forget() {
    if (!check) return;
    checked = null;
    fill(said);
    update();
  }

  function submit(event) {
    event.preventDefault();
    if (check) look();
    else run();
  }

  async function busy(work) {
    isBusy = true;
    hasFailed = false;
    update();
    try {
      await work();
    } catch (error) {
      hasFailed = true;
      if (check) checked = null;
      fill(said, problem(error));
    } finally {
      isBusy = false;
      update();
    }
  }

  function look() {
    return busy(async () => {
      const asked = wanted();
      showCommand(asked);
      fill(said, h("p", { class: "muted" }, "Checking…"));
      const found = await check(asked);
      const isNothing = found instanceof Nothing;
      fill(said, isNothing ? found.shown : found);
      checked = isNothing ? null : asked;
    });
  }

  function run() {
    return busy(async () => {
      const text = await apply(check ? checked : wanted());
      dialog.close();
      if (text) toast(text, "good");
      await onDone();
    });
  }

  function showCommand(asked) {
    fill(same, command ? copied("CLI", command(asked)) : null);
  }

  if (!check && command) {
    form.addEventListener("input", () => showCommand(wanted()));
    showCommand(wanted());
  }
  update();
  if (check && !fields) look();
}

/** Something to read. */
export function tell(title, ...content) {
  const dialog = open(title, content, h("div", { class: "actions" }, h("button", { class: "primary", onclick: () => dialog.close() }, "Close")));
}

function open(title, ...content) {
  const dialog = h("dialog", { "aria-label": title }, h("h2", {}, title), content);
  openDialog(dialog);
  return dialog;
}

/** Rows of a difference: what, before, after. */
export function difference(titles, rows, most = 200) {
  return h("div", { class: "scroller short", tabindex: "0", role: "region", "aria-label": "What changes" },
    h("table", {}, h("thead", {}, h("tr", {}, titles.map((each) => h("th", { scope: "col" }, each)))),
      h("tbody", {}, rows.slice(0, most).map((row) => h("tr", {}, row.map((each) => h("td", {}, each)))),
        rows.length > most ? h("tr", {}, h("td", { colspan: titles.length, class: "muted" }, `and ${rows.length - most} more`)) : null)));
}

// ---- in front of the page

const BUTTONS = "main a, main button";
const nameOf = (element) => element.getAttribute("aria-label") ?? element.textContent;

/** Show a dialog; it is removed when it closes. */
export function openDialog(dialog) {
  const opener = document.activeElement;
  const alike = () => [...document.querySelectorAll(BUTTONS)].filter((each) => nameOf(each) === nameOf(opener));
  const index = alike().indexOf(opener);
  dialog.addEventListener("close", () => {
    dialog.remove();
    // The browser returns the focus, unless the page was drawn anew behind the dialog.
    if (!opener.isConnected) (alike()[index] ?? document.getElementById("main")).focus({ preventScroll: true });
  });
  document.body.append(dialog);
  dialog.showModal();
}

export function closeDialogs() {
  for (const each of [...document.querySelectorAll("dialog[open]")].reverse()) each.close();
}
