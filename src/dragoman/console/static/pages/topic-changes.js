// Changes of topics: each shows first what it would do.

import { api, get, patch, post, query, remove } from "../api.js";
import { command, option } from "../commands.js";
import { Nothing, change, choice, difference, field } from "../dialogs.js";
import { h } from "../dom.js";
import { bytes, number, plural, sum, unanswered } from "../format.js";
import { facts, marked, to } from "../parts.js";

const DRY = query({ validate_only: true });

const text = (properties) => h("input", { autocomplete: "off", spellcheck: "false", ...properties });
const count = (properties) => h("input", { type: "number", min: 1, ...properties });

/** `similar`: a topic whose partitions and configuration the new one gets, unless they are changed. */
export function createTopic(state, onDone, similar = null) {
  const name = text({ required: true, maxlength: 249, pattern: "[a-zA-Z0-9._\\-]+", title: "Letters, digits, dots, underscores and dashes" });
  const partitions = count({ placeholder: "the node's default", max: 10000 });
  const copies = count({ placeholder: "the node's default", max: 32767 });
  const own = Object.fromEntries((similar?.config ?? []).filter((each) => each.source === "topic").map((each) => [each.name, each.value]));
  const policies = new Set(["", "delete", "compact", "compact,delete", own["cleanup.policy"] ?? ""]);
  const policy = choice([...policies].map((each) => [each, each || "the node's default"]));
  const retention = text({ placeholder: "the node's default" });
  const more = h("textarea", { placeholder: "segment.bytes=1048576", spellcheck: "false" });
  if (similar) {
    name.value = `${similar.name}-copy`;
    partitions.value = similar.partitions.length;
    copies.value = similar.partitions[0].replicas.length;
    policy.value = own["cleanup.policy"] ?? "";
    retention.value = own["retention.ms"] ?? "";
    const rest = Object.entries(own).filter(([key]) => !["cleanup.policy", "retention.ms"].includes(key));
    // Schemas may have several lines, which mean the same as one.
    more.value = rest.map(([key, value]) => `${key}=${value.replace(/\s*\n\s*/g, " ")}`).join("\n");
  }
  const wanted = () => {
    const config = lines(more.value);
    if (policy.value) config["cleanup.policy"] = policy.value;
    if (retention.value.trim()) config["retention.ms"] = milliseconds(retention.value);
    const found = { name: name.value, config };
    if (partitions.value) found.partitions = Number(partitions.value);
    if (copies.value) found.replication_factor = Number(copies.value);
    return found;
  };
  change({
    title: similar ? `Create a topic similar to ${similar.name}` : "Create topic",
    fields: [
      field("Name", name),
      h("div", { class: "pair" }, field("Partitions", partitions), field("Replicas", copies)),
      h("div", { class: "pair" }, field("Old records are", policy, "deleted, or compacted to the last one of each key"),
        field("Kept for", retention, "milliseconds, or such as 90m, 12h, 7d; -1 for ever")),
      h("details", { open: Boolean(more.value) }, h("summary", {}, "Further configuration"), field("One key=value a line", more)),
    ],
    wanted,
    check: async (asked) => {
      await post(`${api("topics")}${DRY}`, asked);
      return h("div", {}, h("p", {}, "The node accepts this topic:"), facts([
        ["Name", asked.name],
        ["Partitions", asked.partitions ? number(asked.partitions) : "the node's default"],
        ["Replicas", asked.replication_factor ? number(asked.replication_factor) : "the node's default"],
        ...Object.entries(asked.config),
      ]));
    },
    apply: async (asked) => {
      await post(api("topics"), asked);
      location.hash = to("topics", asked.name);
      return `${asked.name} is created.`;
    },
    command: (asked) => command(state, "topic create", asked.name,
      option("--partitions", asked.partitions), option("--replication-factor", asked.replication_factor),
      Object.entries(asked.config).flatMap(([key, value]) => ["--config", `${key}=${value}`])),
    verb: "Create",
    onDone,
  });
}

/** `key=value` a line. */
function lines(all) {
  const found = {};
  for (const line of all.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`expected key=value, got ${line}`);
    found[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return found;
}

const UNITS = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

function milliseconds(written) {
  const found = written.trim().match(/^(-1|\d+)([smhd]?)$/);
  if (!found) throw new Error(`kept for: expected such as 3600000, 90m, 12h or 7d, got ${written}`);
  return String(Number(found[1]) * (UNITS[found[2]] ?? 1));
}

export function changeKey(state, topic, row, key, onDone) {
  const input = key?.choices.length && key.type !== "list"
    ? choice(key.choices)
    : key?.type === "boolean" ? choice(["true", "false"]) : text({});
  input.value = row.value;
  change({
    title: `Change ${row.name}`,
    fields: [key ? h("p", {}, marked(key.meaning)) : null,
      field("New value", input, key ? [key.type, key.choices.length ? `: ${key.choices.join(", ")}` : ""] : null)],
    wanted: () => ({ set: { [row.name]: input.value } }),
    ...configChange(state, topic, row),
    verb: "Apply",
    onDone,
  });
}

export function resetKey(state, topic, row, onDone) {
  change({
    title: `Reset ${row.name} to the node's default`,
    wanted: () => ({ unset: [row.name] }),
    ...configChange(state, topic, row),
    verb: "Reset",
    onDone,
  });
}

function configChange(state, topic, row) {
  const keyOf = (found) => found.items.find((each) => each.name === row.name);
  const current = async () => keyOf(await get(api("topics", topic, "config")));
  const text = (key) => `${key.value} (${key.source.replaceAll("_", " ")})`;
  // What the difference was shown against: another user may change the same key meanwhile.
  let seen = null;
  return {
    check: async (asked) => {
      const after = keyOf(await patch(`${api("topics", topic)}${DRY}`, asked));
      seen = await current();
      if (after && text(after) === text(seen)) return new Nothing(h("p", {}, "Nothing changes."));
      return difference(["Key", "Now", "Afterwards"], [[h("code", {}, row.name), h("del", {}, text(seen)), h("ins", {}, after ? text(after) : "changed")]]);
    },
    apply: async (asked) => {
      const now = await current();
      if (text(now) !== text(seen)) throw new Error(`${row.name} was changed meanwhile, to ${text(now)}: look at what changes now.`);
      await patch(api("topics", topic), asked);
      return `${row.name} of ${topic} is changed.`;
    },
    command: (asked) => command(state, "topic alter", topic, asked.set ? ["--set", `${row.name}=${asked.set[row.name]}`] : ["--unset", row.name]),
  };
}

export function addPartitions(state, topic, onDone) {
  const now = topic.partitions.length;
  const total = count({ min: now + 1, max: 10000, value: now + 1, required: true });
  change({
    title: `Add partitions to ${topic.name}`,
    fields: [h("p", {}, "Partitions cannot be removed again. Keys that are written from now on may go to other partitions than before, so their order is kept only from now on."),
      field(`Partitions in all (now ${now})`, total)],
    wanted: () => ({ total: Number(total.value) }),
    check: async (asked) => {
      const found = await post(`${api("topics", topic.name, "partitions")}${DRY}`, asked);
      return difference(["", "Now", "Afterwards"], [["Partitions", number(found.before), h("ins", {}, number(found.total))]]);
    },
    apply: async (asked) => {
      await post(api("topics", topic.name, "partitions"), asked);
      return `${topic.name} has ${plural(asked.total, "partition")}.`;
    },
    command: (asked) => command(state, "topic partitions", topic.name, asked.total, "--yes"),
    verb: "Add",
    onDone,
  });
}

export function truncateTopic(state, topic, onDone) {
  const before = text({ required: true, value: "@-7d" });
  const partitions = text({ placeholder: "all" });
  change({
    title: `Truncate ${topic.name}`,
    fields: [h("p", {}, "Records before a place are deleted. They cannot be brought back."),
      field("Delete before", before, "latest: all records; an offset; -N: all but the last N; @-7d: older than 7 days; or a time such as 2026-11-15T10:00:00Z"),
      field("Partitions", partitions, "such as 0,2")],
    wanted: () => {
      const found = { before: /^\d+$/.test(before.value) ? Number(before.value) : before.value.trim() };
      if (partitions.value.trim()) found.partitions = partitions.value.split(",").map((each) => Number(each));
      return found;
    },
    check: async (asked) => {
      const found = await post(`${api("topics", topic.name, "truncate")}${DRY}`, asked);
      const gone = sum(found.items.map((each) => Math.max(0, each.after - each.before)));
      return [h("p", {}, h("b", {}, plural(gone, "offset")), " of records would be deleted."),
        difference(["Partition", "First offset now", "Afterwards"], found.items.map((each) =>
          [each.partition, number(each.before), each.problem ? each.problem : each.after > each.before ? h("del", {}, number(each.after)) : "the same"]))];
    },
    apply: async (asked) => {
      await post(api("topics", topic.name, "truncate"), asked);
      return `${topic.name} is truncated.`;
    },
    command: (asked) => command(state, "topic truncate", topic.name, "--before", asked.before, (asked.partitions ?? []).flatMap((each) => ["-p", each]), "--yes"),
    verb: "Delete records",
    typed: topic.name,
    isDangerous: true,
    onDone,
  });
}

export function deleteTopic(state, topic) {
  change({
    title: `Delete ${topic.name}`,
    check: async () => {
      const found = await remove(`${api("topics", topic.name)}${DRY}`);
      return [h("p", {}, "This cannot be undone. It would delete:"),
        facts([["Partitions", number(found.partitions)], ["Records", `at most ${number(found.records)}`], ["Size", bytes(found.size_bytes)],
          ["Offsets of groups", found.group_count ? `${number(found.group_count)}: ${found.groups.slice(0, 10).join(", ")}${found.group_count > 10 ? " …" : ""}` : "none"],
          found.unreachable.length ? ["Not counted", `${unanswered(found.unreachable)}.`] : null])];
    },
    apply: async () => {
      await remove(api("topics", topic.name));
      location.hash = "#/topics";
      return `${topic.name} is deleted.`;
    },
    command: () => command(state, "topic delete", topic.name, "--yes"),
    verb: "Delete",
    typed: topic.name,
    isDangerous: true,
  });
}
