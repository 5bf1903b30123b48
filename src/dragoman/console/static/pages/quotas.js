// Quotas of users, client ids and addresses, which of them apply, and what is used of them.

import { api, get, post, query } from "../api.js";
import { command, equivalent, option, request } from "../commands.js";
import { Nothing, action, change, choice, difference, field, toolbar } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { NOTHING, bytes, isMissing, number, rate } from "../format.js";
import { badge, card, copied, problem } from "../parts.js";
import { Table } from "../table.js";

const QUOTAS = api("security", "quotas");
const DRY = query({ validate_only: true });
const DEFAULT = "<default>";
const perSecond = rate(number);
const KEYS = {
  producer_byte_rate: { title: "Bytes written a second", show: rate(bytes) },
  consumer_byte_rate: { title: "Bytes read a second", show: rate(bytes) },
  request_percentage: { title: "Share of a node’s loop, in percent", show: (value) => `${number(value)} %`, step: "any" },
  controller_mutation_rate: { title: "Partitions created or deleted a second", show: perSecond, step: "any" },
  connection_creation_rate: { title: "New connections a second", show: perSecond, isOfAddress: true },
};
const NAMES = [["user", "User"], ["client_id", "Client id"], ["address", "Address"]];
/** What has quotas, by the names that it has. */
const KINDS = [["user", "a user"], ["client_id", "a client id"], ["user client_id", "a user with a client id"], ["address", "an address"]];

const shown = (key, value) => (isMissing(value) ? NOTHING : KEYS[key] ? KEYS[key].show(value) : number(value));
const nameOf = (entity, kind) => (entity[`default_${kind}`] ? DEFAULT : entity[kind] ?? "");
const entityText = (entity) => NAMES.map(([kind, title]) => [title.toLowerCase(), nameOf(entity, kind)]).filter(([, name]) => name).map((each) => each.join(" ")).join(", ");

const entityOptions = (entity) => [
  option("--for-user", entity.user), entity.default_user && "--default-user",
  option("--client-id", entity.client_id), entity.default_client_id && "--default-client-id",
  option("--address", entity.address), entity.default_address && "--default-address",
].flat();

const nameColumns = (of) => NAMES.map(([kind, title]) => ({
  name: kind, title, of: (row) => of(row, kind), show: (name) => (name === DEFAULT ? badge("default") : name || NOTHING),
}));
/** In narrow columns it breaks between its words. */
const keyCode = (key) => h("code", { title: KEYS[key]?.title }, key.split(/(?<=_)/).flatMap((part) => [part, h("wbr", {})]));
const quotaColumn = { name: "quota", title: "Quota", of: (row) => row.key, show: keyCode };

export async function showQuotas(place, { state, search, signal }) {
  const table = new Table(
    [
      ...nameColumns((row, kind) => nameOf(row.entity, kind)),
      quotaColumn,
      { name: "value", title: "Value", of: (row) => row.value, isNumber: true, show: (value, row) => shown(row.key, value) },
      state.isReadOnly ? null : { name: "actions", title: "Action", isPlain: true, of: () => null, show: (_, row) => [
        action(state, "Change", () => setQuotas(state, refresh, row), { label: `Change ${row.key} of ${entityText(row.entity)}` }), " ",
        action(state, "Remove", () => removeQuota(state, refresh, row), { isDangerous: true, label: `Remove ${row.key} of ${entityText(row.entity)}` })] },
    ].filter(Boolean),
    { search: (row) => `${entityText(row.entity)} ${row.key}`, placeholder: "Filter quotas", label: "Quotas", empty: "There are no quotas: nothing limits what clients use." },
  );
  const uses = new Table(
    [
      { name: "state", title: "State", of: (row) => (row.throttled ? "throttled" : "within"), show: (text) => badge(text, text === "throttled" ? "bad" : "good") },
      quotaColumn,
      ...nameColumns((row, kind) => row[kind] ?? ""),
      { name: "rate", title: "Use", of: (row) => row.rate, isNumber: true, show: (value, row) => shown(row.key, value) },
      { name: "limit", title: "Quota’s value", of: (row) => row.quota, isNumber: true, show: (value, row) => shown(row.key, value) },
    ],
    { search: (row) => NAMES.map(([kind]) => row[kind]).concat(row.key).join(" "), placeholder: "Filter use", label: "Use of quotas", empty: "No client that has a quota uses the answering node now.", order: { name: "state", isDown: false } },
  );
  const more = h("p", { class: "muted" });
  fill(place,
    toolbar(state, action(state, "Set quotas", () => setQuotas(state, refresh), { isMain: true })), table.element,
    card("What counts for a client?", ...questions(state, search)),
    card("Use on the answering node", h("p", { class: "muted" }, "Each node measures for itself, over eleven seconds. Names that clients share are shown: without a client id, all of a user count together."), uses.element, more),
    equivalent([command(state, "quota list"), command(state, "quota usage")], [request(state, "GET", QUOTAS), request(state, "GET", `${QUOTAS}/uses`)]));
  async function refresh() {
    const [found, used] = await Promise.all([get("lists/quotas", signal), get(`${QUOTAS}/uses`, signal)]);
    table.show(found.items.flatMap(({ entity, quotas }) => Object.entries(quotas).map(([key, value]) => ({ entity, key, value, quotas }))));
    uses.show(used.items);
    fill(more, used.items.length < used.counted ? `The node counts ${number(used.counted)} uses; those that rest are not shown.` : null);
  }
  await refresh();
  return { refresh };
}

// ---- changes

/** Set quotas; with `row`, those of its entity, of which what is emptied is removed. */
function setQuotas(state, onDone, row = null) {
  const names = Object.fromEntries(NAMES.map(([kind]) => [kind, h("input", { name: kind, autocomplete: "off", spellcheck: "false", placeholder: "default", maxlength: 1024 })]));
  const values = Object.fromEntries(Object.entries(KEYS).map(([key, { step }]) => [key, h("input", { name: key, type: "number", min: 0, step: step ?? 1, value: row?.quotas[key] ?? "", autocomplete: "off" })]));
  const kind = choice(KINDS, "user", { name: "kind" });
  const fields = h("div", { class: "form" });
  const kinds = () => (row ? NAMES.map(([each]) => each).filter((each) => nameOf(row.entity, each)) : kind.value.split(" "));
  const keys = () => Object.keys(KEYS).filter((key) => Boolean(KEYS[key].isOfAddress) === kinds().includes("address"));
  const entity = () => row?.entity ?? Object.fromEntries(kinds().map((each) => (names[each].value ? [each, names[each].value] : [`default_${each}`, true])));
  const draw = () => fill(fields,
    row ? null : NAMES.filter(([each]) => kinds().includes(each)).map(([each, title]) => field(title, names[each], "Empty: the default of all without a quota of their own.")),
    keys().map((key) => field(KEYS[key].title, values[key], h("code", {}, key))));
  kind.addEventListener("change", draw);
  draw();
  change({
    title: row ? `Change quotas of ${entityText(row.entity)}` : "Set quotas",
    fields: [row ? null : field("Of", kind), fields,
      h("p", { class: "muted" }, row ? "What is emptied is removed." : "What is empty stays as it is.")],
    wanted: () => {
      const filled = keys().filter((key) => values[key].value !== "");
      return {
        entity: entity(), set: Object.fromEntries(filled.map((key) => [key, Number(values[key].value)])),
        unset: keys().filter((key) => row && key in row.quotas && !filled.includes(key)),
      };
    },
    ...checked(), verb: "Apply", onDone,
    command: (asked) => [
      Object.keys(asked.set).length ? command(state, "quota set", ...Object.entries(asked.set).map(([key, value]) => `${key}=${value}`), ...entityOptions(asked.entity)) : null,
      asked.unset.length ? removeCommand(state, asked) : null,
    ].filter(Boolean).join(" && "),
  });
}

function removeQuota(state, onDone, row) {
  change({
    title: `Remove ${row.key} of ${entityText(row.entity)}`,
    wanted: () => ({ entity: row.entity, set: {}, unset: [row.key] }),
    ...checked("Quotas of others may apply to these clients then, such as a default."),
    command: (asked) => removeCommand(state, asked),
    verb: "Remove", isDangerous: true, onDone,
  });
}

const removeCommand = (state, asked) => command(state, "quota remove", ...asked.unset, ...entityOptions(asked.entity));

/** Check and change; what was checked must still be what is changed. */
function checked(note) {
  let seen = null;
  const ask = (asked) => post(`${QUOTAS}${DRY}`, asked);
  return {
    check: async (asked) => {
      seen = await ask(asked);
      const rows = Object.keys({ ...seen.before, ...seen.after }).sort().filter((key) => seen.before[key] !== seen.after[key]);
      if (!rows.length) return new Nothing(h("p", {}, "Nothing changes."));
      return [difference(["Quota", "Now", "Afterwards"], rows.map((key) => [keyCode(key), h("del", {}, exact(key, seen.before[key])), h("ins", {}, exact(key, seen.after[key]))])),
        note ? h("p", { class: "muted" }, note) : null];
    },
    apply: async (asked) => {
      const now = await ask(asked);
      if (JSON.stringify(now.before) !== JSON.stringify(seen.before)) throw new Error("These quotas were changed meanwhile: look at what changes now.");
      await post(QUOTAS, asked);
      return `Quotas of ${entityText(asked.entity)} are changed.`;
    },
  };
}

/** Rounded sizes would hide small changes. */
const exact = (key, value) => (isMissing(value) ? "none" : key.endsWith("_byte_rate") ? `${number(value)} bytes/s` : shown(key, value));

// ---- what applies

function questions(state, search) {
  const inputs = Object.fromEntries(NAMES.map(([kind]) => [kind, h("input", { name: `of_${kind}`, value: search.get(kind) ?? "", autocomplete: "off", spellcheck: "false", maxlength: 1024 })]));
  inputs.user.placeholder = "ANONYMOUS";
  const table = new Table(
    [
      quotaColumn,
      { name: "value", title: "Value", of: (row) => row.value, isNumber: true, show: (value, row) => (isMissing(value) ? "unlimited" : shown(row.key, value)) },
      { name: "entity", title: "Quota of", of: (row) => (row.entity ? entityText(row.entity) : "") },
    ],
    { label: "Quotas that count", empty: "Nothing." },
  );
  const answer = h("div", { "aria-live": "polite" });
  const same = h("div", {});
  const question = () => ({ user: inputs.user.value || "ANONYMOUS", client_id: inputs.client_id.value, address: inputs.address.value });
  const showSame = () => {
    const asked = question();
    fill(same, copied("CLI", command(state, "quota test", option("--for-user", asked.user), option("--client-id", asked.client_id), option("--address", asked.address))),
      copied("HTTP", request(state, "POST", `${QUOTAS}/tests`)));
  };
  const ask = async (event) => {
    event.preventDefault();
    try {
      table.show((await post(`${QUOTAS}/tests`, question())).items);
      fill(answer, table.element);
    } catch (error) {
      fill(answer, problem(error));
    }
  };
  showSame();
  return [
    h("form", { class: "form", onsubmit: ask, oninput: showSame },
      field("For the user", inputs.user, "Of a login; without one, ANONYMOUS."), field("with the client id (optional)", inputs.client_id, "Of Kafka’s clients; others have none."),
      field("from (optional)", inputs.address, "The address of the client."), h("div", { class: "actions" }, h("button", { class: "primary" }, "Ask"))),
    answer, same,
  ];
}
