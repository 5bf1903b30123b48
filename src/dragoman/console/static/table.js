// A table that sorts, filters, and shows only the rows that can be seen.

import { fill, h } from "./dom.js";
import { csvButton } from "./files.js";
import { NOTHING, isMissing, number } from "./format.js";

const ROW_PX = 37;
const ALL_MAX = 200;

/**
 * `columns`: {name, title, of: (row) => value, show: (value, row) => text or element, isNumber,
 * help, isPlain: neither sorted by nor in files, isChoice: not in files}. Options: `order` {name, isDown}, `search` (row) => text, `placeholder`,
 * `isKept`: false without a file, `empty` text, `key` (row) => what names it: its element stays when figures change.
 */
export class Table {
  constructor(columns, options = {}) {
    this.columns = columns;
    this.options = options;
    this.rows = [];
    this.order = options.order ?? { name: columns[0].name, isDown: false };
    this.words = "";
    this.made = new Map();
    this.count = h("span", { class: "muted", role: "status" });
    this.input = h("input", {
      type: "search",
      placeholder: options.placeholder ?? "Filter",
      "aria-label": options.placeholder ?? "Filter",
      oninput: () => {
        this.words = this.input.value;
        this.draw();
      },
    });
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.scroller = h(
      "div",
      { class: "scroller", tabindex: "0", role: "region", "aria-label": options.label ?? "Table" },
      h("table", {}, h("thead", {}, this.head), this.body),
    );
    this.scroller.addEventListener("scroll", () => this.drawRows(), { passive: true });
    const isKept = options.isKept !== false;
    const bar = options.search
      ? h("div", { class: "bar" }, this.input, this.count, isKept ? csvButton(options.label ?? "Table", () => this.lines()) : null)
      : null;
    this.element = h("div", { class: "table" }, bar, this.scroller);
    this.drawHead();
  }

  /** Filter by these words, as if they were typed. */
  filter(words) {
    this.input.value = this.words = words;
  }

  show(rows) {
    this.rows = rows;
    // What is being pressed must not change before it is released.
    if (!this.body.matches(":active")) this.draw();
  }

  /** The rows that fit the filter, in the order shown, as lines of a file. */
  lines() {
    const columns = this.columns.filter((each) => !each.isPlain && !each.isChoice);
    return [columns.map((each) => each.title), ...(this.shown ?? []).map((row) => columns.map((each) => each.of(row)))];
  }

  drawHead() {
    fill(
      this.head,
      this.columns.map((column) => {
        if (column.isPlain) return h("th", { scope: "col" }, column.title);
        const isOrder = this.order.name === column.name;
        const sort = isOrder ? (this.order.isDown ? "descending" : "ascending") : "none";
        const button = h(
          "button",
          {
            class: "sort",
            title: column.help,
            onclick: () => {
              const isDown = isOrder ? !this.order.isDown : Boolean(column.isNumber);
              this.order = { name: column.name, isDown };
              this.drawHead();
              this.draw();
            },
          },
          column.title,
          isOrder ? h("span", { "aria-hidden": "true" }, this.order.isDown ? " ↓" : " ↑") : "",
        );
        const attributes = { "aria-sort": sort, class: column.isNumber ? "number" : null, scope: "col" };
        return h("th", attributes, button);
      }),
    );
  }

  draw() {
    const column = this.columns.find((each) => each.name === this.order.name) ?? this.columns[0];
    const words = this.words.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (row) => {
      const text = this.options.search(row).toLowerCase();
      return words.every((word) => text.includes(word));
    };
    const found = words.length ? this.rows.filter(fits) : [...this.rows];
    const direction = this.order.isDown ? -1 : 1;
    found.sort((one, other) => direction * compared(column.of(one), column.of(other)));
    this.shown = found;
    this.count.textContent =
      found.length === this.rows.length
        ? number(found.length)
        : `${number(found.length)} of ${number(this.rows.length)}`;
    this.scroller.classList.toggle("tall", found.length > ALL_MAX);
    this.first = -1;
    this.drawRows();
  }

  drawRows() {
    const rows = this.shown ?? [];
    if (!rows.length) {
      const text = this.rows.length ? "Nothing fits the filter." : (this.options.empty ?? "Nothing here.");
      this.made.clear();
      fill(this.body, h("tr", {}, h("td", { colspan: this.columns.length, class: "muted none" }, text)));
      return;
    }
    if (rows.length <= ALL_MAX) {
      this.place(rows.map((row) => this.rowOf(row)));
      return;
    }
    const seen = Math.ceil(this.scroller.clientHeight / ROW_PX) || 30;
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW_PX) - seen);
    if (first === this.first) return;
    this.first = first;
    const last = Math.min(rows.length, first + 3 * seen);
    const gap = (count) =>
      h("tr", { "aria-hidden": "true" }, h("td", { colspan: this.columns.length, class: "gap" }, this.gap(count)));
    const shown = rows.slice(first, last).map((row) => this.rowOf(row));
    this.place([first ? gap(first) : null, ...shown, last < rows.length ? gap(rows.length - last) : null].filter(Boolean));
  }

  /** Put rows into the body. Rows that are there stay, so that a refresh keeps the focus. */
  place(elements) {
    const wanted = new Set(elements);
    for (const each of [...this.body.children]) if (!wanted.has(each)) each.remove();
    elements.forEach((each, index) => {
      if (this.body.children[index] !== each) this.body.insertBefore(each, this.body.children[index] ?? null);
    });
    for (const [key, each] of this.made) if (!wanted.has(each.element)) this.made.delete(key);
  }

  /** The element of a row; the one made before where nothing has changed. */
  rowOf(row) {
    const key = this.options.key ? this.options.key(row) : row;
    const text = JSON.stringify(row);
    const known = this.made.get(key);
    if (known?.text === text) return known.element;
    const made = this.row(row);
    if (known && known.element.isConnected) {
      // Buttons act on the row that they were made for, so all cells are new; the focus stays.
      const focused = targets(known.element).indexOf(document.activeElement);
      known.element.replaceChildren(...made.children);
      if (focused >= 0) targets(known.element)[focused]?.focus({ preventScroll: true });
      known.text = text;
      return known.element;
    }
    this.made.set(key, { text, element: made });
    return made;
  }

  gap(count) {
    const space = h("div", {});
    space.style.height = `${count * ROW_PX}px`;
    return space;
  }

  row(row) {
    return h(
      "tr",
      {},
      this.columns.map((column) => {
        const value = column.of(row);
        const shown = column.show ? column.show(value, row) : isMissing(value) || value === "" ? NOTHING : value;
        return h("td", { class: column.isNumber ? "number" : null, "data-title": column.title }, h("div", {}, shown));
      }),
    );
  }
}

const targets = (row) => [...row.querySelectorAll("a, button, input, select")];

function compared(one, other) {
  if (isMissing(one)) return isMissing(other) ? 0 : 1;
  if (isMissing(other)) return -1;
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other), "en", { numeric: true });
}
