// Dialogs in front of the page: they hold the focus, Escape closes them, and the focus returns.

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
