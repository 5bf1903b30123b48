// Searches that are kept under a name in this browser, for each topic.

import { fill, h } from "../dom.js";
import { toast } from "../parts.js";

const SAVED_MAX = 50;

export class Saved {
  /** `address()` gives the address of the search as it stands. */
  constructor(topic, address) {
    this.place = `searches:${topic}`;
    this.address = address;
    this.name = h("input", { autocomplete: "off", maxlength: 80, "aria-label": "Name of this search", placeholder: "name of this search" });
    this.list = h("ul", { class: "saved" });
    this.title = h("summary", {});
    // A form of its own cannot be within the form of the search.
    this.name.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); this.save(); } });
    this.element = h("details", { class: "more" }, this.title, this.list,
      h("div", { class: "bar named" }, this.name, h("button", { type: "button", onclick: () => this.save() }, "Save")),
      h("p", { class: "muted" }, "Kept in this browser. The address of the page has the search, too, and can be sent."));
    this.draw();
  }

  all() {
    try {
      return JSON.parse(localStorage.getItem(this.place)) ?? [];
    } catch {
      return [];
    }
  }

  keep(searches) {
    if (searches.length) localStorage.setItem(this.place, JSON.stringify(searches));
    else localStorage.removeItem(this.place);
    this.draw();
  }

  save() {
    const name = this.name.value.trim();
    if (!name) return this.name.focus();
    const others = this.all().filter((each) => each.name !== name);
    if (others.length >= SAVED_MAX) return toast(`At most ${SAVED_MAX} searches of a topic are kept: delete one.`, "bad");
    this.name.value = "";
    this.keep([...others, { name, address: this.address() }]);
  }

  draw() {
    const searches = this.all();
    this.title.textContent = `Saved searches (${searches.length})`;
    fill(this.list, searches.map(({ name, address }) => h("li", {}, h("a", { href: address.startsWith("#/topics/") ? address : "#/topics" }, name), " ",
      h("button", { class: "quiet", type: "button", "aria-label": `Delete ${name}`, onclick: () => this.keep(this.all().filter((each) => each.name !== name)) }, "✕"))));
  }
}
