// New records of several topics: those that are named, and those whose names match a pattern.

import { api, get, query } from "../api.js";
import { equivalent, request, shell } from "../commands.js";
import { field } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { plural } from "../format.js";
import { link, problem, settled, to } from "../parts.js";
import { Details } from "../records/details.js";
import { Following } from "../records/following.js";
import { RecordList } from "../records/list.js";

const ROWS_MAX = 500;
const NAMES_MAX = 1000;

export async function show(place, context) {
  const page = new TailPage(context);
  fill(place, h("p", { class: "crumb" }, link("#/topics", "Topics")), h("h1", {}, "Live tail of several topics"), page.element);
  context.signal.addEventListener("abort", () => page.stop());
  await page.begin();
  return { title: "Live tail" };
}

class TailPage {
  constructor({ search, state, signal }) {
    this.state = state;
    this.signal = signal;
    this.running = null;
    const input = (name, properties) => h("input", { name, autocomplete: "off", spellcheck: "false", value: search.get(name) ?? "", ...properties });
    this.names = h("datalist", { id: "topic-names" });
    this.fields = {
      topics: input("topics", { list: "topic-names", placeholder: "orders, payments" }),
      pattern: input("pattern", { placeholder: "^shop[.]", class: "mono" }),
      filter: input("filter", { placeholder: 'value.amount > 10 and key contains "x"', class: "mono" }),
    };
    this.follow = h("button", { class: "primary" }, "Follow");
    this.halt = h("button", { type: "button", onclick: () => this.stop() }, "Stop");
    this.pause = h("button", { type: "button", onclick: () => this.turn(!this.following.isPaused) }, "Pause");
    this.said = h("div", {});
    this.followed = h("p", { class: "muted", role: "status" }, "Records that are written from now on are shown, 50 a second at most; the others are counted.");
    this.counters = h("p", { class: "counters", role: "status" });
    this.list = new RecordList((record) => this.open(record), ROWS_MAX, { hasTopic: true });
    this.following = new Following(this.list, this.counters, this.said);
    this.details = new Details("", (partition, offset) => `${to("topics", this.details.topic, "records")}?record=${partition}:${offset}`, () => this.list.mark(null), { namesTopic: true });
    this.same = h("div", {});
    const { topics, pattern, filter } = this.fields;
    this.element = h("div", { class: "records-page" },
      h("form", { class: "card search-form", onsubmit: (event) => { event.preventDefault(); this.start(); } },
        h("div", { class: "fields" }, field("Topics", topics), this.names, field("And those that match", pattern)),
        field("Filter", filter),
        h("div", { class: "bar" }, this.follow, this.halt, this.pause)),
      this.said, this.followed, h("div", { class: "bar" }, this.counters, h("span", { class: "grow" }), this.list.order),
      h("div", { class: "with-panel" }, this.list.element, this.details.element), this.same);
    this.list.clear("Nothing is followed.");
    this.allow(false);
  }

  async begin() {
    this.equivalents();
    if (this.fields.topics.value || this.fields.pattern.value) this.start();
    const { value } = await settled(get("lists/topics", this.signal));
    fill(this.names, (value?.items ?? []).slice(0, NAMES_MAX).map((each) => h("option", { value: each.name })));
  }

  allow(isRunning) {
    this.halt.hidden = this.pause.hidden = !isRunning;
  }

  wanted() {
    const { topics, pattern, filter } = this.fields;
    const named = topics.value.split(",").map((each) => each.trim()).filter(Boolean);
    return { topics: named, pattern: pattern.value.trim(), filter: filter.value.trim() };
  }

  start() {
    this.stop();
    const mine = (this.running = new AbortController());
    mine.signal.addEventListener("abort", () => this.allow(false));
    const wanted = this.wanted();
    history.replaceState(null, "", `${to("tail")}${query({ ...wanted, topics: wanted.topics.join(",") })}`);
    this.equivalents();
    fill(this.said);
    this.list.clear("Waiting for new records…");
    this.counters.textContent = "";
    this.turn(false);
    this.allow(true);
    this.following.run(wanted, mine.signal, (found) => this.started(found)).catch((error) => {
      mine.abort();
      if (error.name !== "AbortError") fill(this.said, problem(error));
    });
  }

  started({ topics, partitions }) {
    const shown = topics.slice(0, 10).join(", ");
    this.followed.textContent = `${plural(topics.length, "topic")} with ${plural(partitions, "partition")}: ${shown}${topics.length > 10 ? " …" : ""}`;
  }

  stop() {
    this.running?.abort();
    this.running = null;
  }

  turn(isPaused) {
    this.following.isPaused = isPaused;
    this.pause.textContent = isPaused ? "Resume" : "Pause";
  }

  open(record) {
    this.details.topic = record.topic;
    this.details.open(record.partition, record.offset, { key: "auto", value: "auto" }, this.signal);
    this.list.mark(record);
  }

  equivalents() {
    const { topics } = this.wanted();
    const named = topics.length ? topics : ["TOPIC"];
    const bootstrap = shell(this.state.bootstrap || "HOST:PORT");
    fill(this.same, equivalent(named.map((each) => `dragoman consume ${shell(each)} --from end --follow --json --bootstrap ${bootstrap}`),
      named.map((each) => request(this.state, "GET", api("topics", each, "events")))));
  }
}
