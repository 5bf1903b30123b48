// The login: a page at first, and a dialog in front of the page when the session has ended.

import { post } from "./api.js";
import { openDialog } from "./dialogs.js";
import { fill, h } from "./dom.js";
import { problem } from "./parts.js";

/** `user` is the one who is expected, null at first; `onDone` is called after a login. */
export function loginForm({ title, notes, user, onDone }) {
  const name = h("input", { name: "user", autocomplete: "username", required: true, value: user ?? "" });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", autofocus: Boolean(user) });
  const token = h("input", { name: "token", type: "password", autocomplete: "off" });
  const said = h("div", {});
  const send = async (body) => {
    try {
      await post("session", body);
      await onDone();
    } catch (error) {
      fill(said, problem(error));
    }
  };
  return h("form",
    { class: "card login", onsubmit: (event) => { event.preventDefault(); send({ user: name.value, password: password.value }); } },
    h("h1", {}, title), notes,
    h("label", {}, "User", name),
    h("label", {}, "Password", password),
    h("button", { class: "primary" }, "Log in"),
    said,
    h("details", { open: user === "" }, h("summary", {}, "With an API token"),
      h("label", {}, "Token", token),
      h("button", { type: "button", onclick: () => send({ token: token.value }) }, "Log in with the token")));
}

/** Ask again. The page behind stays as it is, and is not seen. Resolves to whether there was a login. */
export function askAgain(user) {
  return new Promise((resolve) => {
    let isDone = false;
    // Escape would discard what is behind it.
    const stay = (event) => { if (event.key === "Escape") event.preventDefault(); };
    const dialog = h("dialog", { class: "again", "aria-label": "Log in again", closedby: "none", onkeydown: stay }, loginForm({
      title: "Your session has ended",
      notes: h("p", {}, "What you were doing is kept. Log in ", user ? ["as ", h("b", {}, user)] : "with a token", " to continue it; another user begins anew."),
      user,
      onDone: () => {
        isDone = true;
        dialog.close();
      },
    }));
    dialog.addEventListener("close", () => resolve(isDone));
    openDialog(dialog);
  });
}
