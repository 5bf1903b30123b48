// Buttons and dialogs that change something at once; what is checked first is in `actions.js`.

import { READ_ONLY } from "./actions.js";
import { openDialog } from "./dialog.js";
import { fill, h } from "./dom.js";
import { problem, toast } from "./parts.js";

/** A button that does something; a reader sees why it cannot be used. `options`: kind, reason. */
export function action(text, state, run, options = {}) {
  const reason = state.isReadOnly ? READ_ONLY : options.reason;
  const button = h("button", { type: "button", class: options.kind, disabled: Boolean(reason), title: reason, onclick: async () => {
    // A button that is disabled would lose the focus, which a dialog returns to it.
    if (button.ariaDisabled) return;
    button.ariaDisabled = "true";
    try {
      await run();
    } catch (error) {
      if (error.name !== "AbortError") toast(explained(error), "bad");
    } finally {
      button.ariaDisabled = null;
    }
  } }, text);
  return button;
}

/** Says once on a page why its buttons cannot be used. */
export const readOnlyNote = (state) => (state.isReadOnly ? h("p", { class: "muted" }, READ_ONLY) : null);

/** An error with what to do about it. */
export function explained(error) {
  if (error.status === 403 && error.code !== "read_only") return `${error.message} – ask an administrator for this right, or see Security.`;
  return error.message;
}

/**
 * A form in a dialog. `run` is called with the form when it is sent; the dialog closes with its
 * result, or shows its error and stays. Resolves to undefined if it was cancelled.
 */
export function formDialog(title, content, submit, run, kind = "primary") {
  return new Promise((resolve) => {
    let result;
    const said = h("div", {});
    const send = h("button", { class: kind }, submit);
    const form = h("form", {
      onsubmit: async (event) => {
        event.preventDefault();
        send.disabled = true;
        try {
          result = (await run(form)) ?? null;
          dialog.close();
        } catch (error) {
          fill(said, problem(Object.assign(new Error(explained(error)), { code: error.code })));
        } finally {
          send.disabled = false;
        }
      },
    }, h("h2", {}, title), content, said,
    h("div", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), send));
    const dialog = h("dialog", { "aria-label": title }, form);
    dialog.addEventListener("close", () => resolve(result));
    openDialog(dialog);
  });
}

/** Something to read in a dialog. */
export function showDialog(title, content) {
  const dialog = h("dialog", { "aria-label": title }, h("h2", {}, title), content,
    h("div", { class: "actions" }, h("button", { class: "primary", onclick: () => dialog.close() }, "Close")));
  openDialog(dialog);
}

export const choice = (properties, options) =>
  h("select", properties, options.map(([value, text]) => h("option", { value, selected: value === properties.chosen }, text)));

/** Keep a text as a file. */
export function download(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: address, download: name }).click();
  URL.revokeObjectURL(address);
}

export { READ_ONLY, field } from "./actions.js";
