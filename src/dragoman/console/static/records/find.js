// Finding a message by its key, or by the id that RocketMQ's producers print: a filter, and where to begin.

import { change, choice, field } from "../dialogs.js";
import { h } from "../dom.js";

// `dragoman.protocols.rocketmq` keeps the properties of messages under these names; Kafka's clients may set the second.
const ID_HEADERS = ["rocketmq.UNIQ_KEY", "UNIQ_KEY"];
const KEYS_HEADERS = ["rocketmq.KEYS", "KEYS"];
const DAY_MS = 86_400_000;

/** Asks for a key or an id. `find` gets fields of the search's form. */
export function askMessage(topic, find) {
  const text = h("input", { required: true, autocomplete: "off", spellcheck: "false", class: "mono" });
  const kind = choice([["key", "key"], ["keys", "one of RocketMQ's keys"], ["id", "RocketMQ message id"]]);
  const begin = choice([["earliest", "the beginning of the topic"], ["time", "the time in the id, of the last month"]]);
  change({
    title: `Find a message in ${topic}`,
    fields: [
      field("By", kind, "The id is the one that producers print (UNIQ_KEY). For an offset message id: dragoman rocketmq query-msg-by-id."),
      field("Equal to", text), field("Search from", begin),
    ],
    wanted: () => wanted(kind.value, text.value.trim(), begin.value),
    apply: async (fields) => { find(fields); },
    verb: "Find",
  });
}

function wanted(kind, text, begin, now = Date.now()) {
  if (kind === "key") return { filter: `key == ${JSON.stringify(text)}`, from: "earliest" };
  if (kind === "keys") return { filter: keysFilter(text), from: "earliest" };
  const id = text.toUpperCase();
  if (!/^([0-9A-F]{32}|[0-9A-F]{56})$/.test(id)) throw new Error("A message id has 32 or 56 hexadecimal digits.");
  if (isOffsetId(id)) throw new Error("This is an offset message id, which names a place on a node: dragoman rocketmq query-msg-by-id finds it.");
  const filter = ID_HEADERS.map((name) => `headers[${JSON.stringify(name)}] == ${JSON.stringify(id)}`).join(" or ");
  return { filter, from: begin === "time" ? new Date(timeIn(id, now) - DAY_MS).toISOString() : "earliest" };
}

/** Several keys are words of one text. */
function keysFilter(text) {
  const quoted = (word) => JSON.stringify(word);
  const within = (what) => [`${what} == ${quoted(text)}`, `${what} startswith ${quoted(`${text} `)}`, `${what} endswith ${quoted(` ${text}`)}`, `${what} contains ${quoted(` ${text} `)}`];
  return ["key", ...KEYS_HEADERS.map((name) => `headers[${JSON.stringify(name)}]`)].flatMap(within).join(" or ");
}

/** The bytes behind the address are a port there, of which two are always zero, and the id of a process here. */
const isOffsetId = (id) => id.slice(id.length === 32 ? 8 : 32).startsWith("0000");

/** When a message was made: milliseconds since the month began, by the clock and the zone of its producer. */
function timeIn(id, now) {
  const at = id.length - 12;
  const since = parseInt(id.slice(at, at + 8), 16);
  const month = (back) => { const day = new Date(now); return new Date(day.getFullYear(), day.getMonth() - back, 1).getTime(); };
  const time = month(0) + since;
  return time <= now + DAY_MS ? time : month(1) + since;
}
