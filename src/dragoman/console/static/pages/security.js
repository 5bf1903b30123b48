// Users, access rules, what they allow, and what clients may use.

import { api, get, post, remove } from "../api.js";
import { command, equivalent, option, request } from "../commands.js";
import { action, change, checkbox, choice, field, readOnlyNote, tell, toolbar } from "../dialogs.js";
import { drawn, fill, h } from "../dom.js";
import { NOTHING, duration, isMissing, number, plural, time } from "../format.js";
import { badge, card, copyButton, explained, facts, figure, link, problem, tabs, to, toast, warning } from "../parts.js";
import { Table } from "../table.js";
import { showQuotas } from "./quotas.js";

const VIEWS = [["", "Users"], ["rules", "Rules"], ["test", "May they?"], ["quotas", "Quotas"], ["mode", "Mode"], ["certificates", "Certificates and key"]];
const OPERATIONS = ["all", "read", "write", "create", "delete", "alter", "describe", "cluster_action", "describe_configs", "alter_configs", "idempotent_write"];
const RESOURCES = ["topic", "group", "cluster", "transactional_id", "user", "capture", "pipeline"];
const PATTERNS = [["literal", "exactly this name, or *"], ["prefixed", "names that begin so"]];
const RULES_PAGES_MAX = 20;
const DAY_MS = 86_400_000;
const LIVES = [["1", "1 day"], ["30", "30 days"], ["90", "90 days"], ["365", "1 year"], ["", "never"]];
const principalOf = (text) => (text.includes(":") ? text : `User:${text}`);
const pairs = (values) => values.map((each) => [each, each.replaceAll("_", " ")]);

export async function show(place, context) {
  const [view = "", name] = context.parts;
  if (view === "users" && name) return showUser(place, context, name);
  const draw = { "": showUsers, rules: showRules, test: showTest, quotas: showQuotas, mode: showMode, certificates: showCertificates }[view];
  if (!draw) {
    fill(place, h("h1", {}, "Security"), h("p", {}, "There is no such view."));
    return null;
  }
  const content = h("div", {});
  fill(place, h("h1", {}, "Security"), tabs("#/security", VIEWS, view), content);
  const made = await draw(content, context);
  return { title: "Security", ...made };
}

// ---- users

const credentials = (user) => [
  user.mechanisms.length ? `password (${user.mechanisms.join(", ")})` : null,
  user.signing_secret ? "signing secret" : null,
].filter(Boolean);

async function showUsers(place, { state, signal }) {
  const table = new Table(
    [
      { name: "name", title: "User", of: (row) => row.name, show: (name) => link(to("security", "users", name), name) },
      { name: "enabled", title: "State", of: (row) => (row.enabled ? "enabled" : "disabled"), show: (text) => badge(text, text === "enabled" ? "good" : "warn") },
      { name: "credentials", title: "Credentials", of: (row) => credentials(row).join(", ") || "no password" },
      { name: "tokens", title: "API tokens", of: (row) => row.tokens, isNumber: true, show: number },
    ],
    { search: (row) => row.name, placeholder: "Filter users", label: "Users", empty: "There are no users: callers are anonymous, unless certificates or networks name them." },
  );
  const create = () => {
    const name = h("input", { name: "name", required: true, autocomplete: "off" });
    const password = h("input", { name: "password", type: "password", autocomplete: "new-password" });
    change({
      title: "Create a user",
      fields: [
        field("Name", name),
        field("Password", password, "Stored as SCRAM verifiers. Empty: no password, for a user with certificates or tokens."),
        h("p", { class: "muted" }, "A new user has no rights of its own: add rules for it."),
      ],
      apply: async () => {
        await post("api/v1/security/users", { name: name.value, password: password.value || null });
        location.hash = to("security", "users", name.value);
        return `${name.value} is created.`;
      },
      command: () => command(state, "user create", name.value || "NAME", !password.value && "--no-password"),
      verb: "Create",
    });
  };
  fill(place, toolbar(state, action(state, "Create user", create, { isMain: true })), table.element, equivalent(command(state, "user list"), request(state, "GET", "api/v1/security/users")));
  const refresh = async () => table.show((await get("lists/users", signal)).items);
  await refresh();
  return { refresh };
}

async function showUser(place, { state, signal }, name) {
  const path = api("security", "users", name);
  const figures = h("div", { class: "figures" });
  const actions = h("div", {});
  const tokens = new Table(
    [
      { name: "id", title: "Token", of: (row) => row.token_id, show: (text) => h("span", { class: "mono" }, text) },
      { name: "label", title: "Label", of: (row) => row.label },
      { name: "rights", title: "Good for", of: (row) => (row.read_only ? "reading" : "all that the user may do") },
      { name: "created", title: "Made", of: (row) => row.created_ms, isNumber: true, show: (ms) => time(ms) },
      { name: "expires", title: "Expires", of: (row) => row.expires_ms, isNumber: true, show: (ms) => (ms === null ? "never" : time(ms)) },
      state.isReadOnly ? null : { name: "revoke", title: "Action", isPlain: true, of: () => null, show: (_, row) => action(state, "Revoke", () => revoke(row), { isDangerous: true, label: `Revoke ${row.token_id}` }) },
    ].filter(Boolean),
    { label: "API tokens", empty: "The user has no API tokens." },
  );
  const rules = rulesTable(state, () => refresh());
  fill(place, h("p", { class: "crumb" }, link("#/security", "Users")), h("h1", {}, name), figures, actions,
    card("API tokens", h("div", { class: "bar" }, action(state, "Make a token", makeToken)), tokens.element), card("Rules for this user", rules.element),
    equivalent(command(state, "user describe", name), request(state, "GET", path)));

  function makeToken() {
    const label = h("input", { name: "label", placeholder: "dashboards" });
    const readOnly = h("input", { type: "checkbox", name: "read_only", checked: true });
    const life = choice(LIVES, "90", { name: "life" });
    let made = null;
    change({
      title: `Make an API token for ${name}`,
      fields: [field("Label", label), checkbox("For reading only", readOnly), field("Expires after", life)],
      apply: async () => {
        made = await post(`${path}/tokens`, { label: label.value, read_only: readOnly.checked, lifetime_ms: life.value ? Number(life.value) * DAY_MS : null });
        return "The token is made.";
      },
      command: () => command(state, "user token create", name, option("--label", label.value), option("--days", life.value), readOnly.checked && "--read-only"),
      verb: "Make",
      onDone: () => {
        tell("The token", h("p", {}, "Copy it now: it is not stored and cannot be shown again."), h("pre", { class: "secret" }, made.token), copyButton("the token", made.token));
        return refresh();
      },
    });
  }

  function revoke(token) {
    change({
      title: `Revoke token ${token.token_id}`,
      fields: h("p", {}, "Requests with it are refused from the next one on."),
      apply: async () => {
        await remove(`${path}/tokens/${encodeURIComponent(token.token_id)}`);
        return `Token ${token.token_id} is revoked.`;
      },
      command: () => command(state, "user token revoke", name, token.token_id),
      verb: "Revoke", isDangerous: true, onDone: refresh,
    });
  }

  const send = async (body, text) => {
    await post(`${path}/commands`, body);
    return text;
  };

  function setSecret(title, label, text, verb, words, done) {
    const secret = h("input", { type: "password", name: "secret", required: true, autocomplete: "new-password" });
    change({
      title, fields: [h("p", {}, text), field(label, secret)],
      apply: () => send({ command: verb, secret: secret.value }, done),
      command: () => command(state, words, name),
      verb: "Set", onDone: refresh,
    });
  }

  const disable = () => change({
    title: `Disable ${name}`,
    fields: h("p", {}, "Its connections are closed, and its logins, tokens and signatures are refused until it is enabled again."),
    apply: () => send({ command: "disable" }, `${name} is disabled.`),
    command: () => command(state, "user disable", name),
    verb: "Disable", isDangerous: true, onDone: refresh,
  });

  const enable = async () => {
    toast(await send({ command: "enable" }, `${name} is enabled.`), "good");
    await refresh();
  };

  const removePassword = () => change({
    title: `Remove the password of ${name}`,
    fields: h("p", {}, "The user can then log in by certificate or token only."),
    apply: () => send({ command: "remove_password" }, "The password is removed."),
    command: () => command(state, "user password", name, "--remove"),
    verb: "Remove", isDangerous: true, onDone: refresh,
  });

  const deleteUser = () => change({
    title: `Delete ${name}`,
    fields: h("p", {}, "Its connections are closed and its tokens revoked. Rules for it stay, and would count for a new user of this name."),
    apply: async () => {
      await remove(path);
      location.hash = "#/security";
      return `${name} is deleted.`;
    },
    command: () => command(state, "user delete", name),
    verb: "Delete", typed: name, isDangerous: true,
  });

  const actionsFor = (user) => toolbar(state,
    user.enabled ? action(state, "Disable", disable, { isDangerous: true }) : action(state, "Enable", enable, { isMain: true }),
    action(state, "Set password", () => setSecret(`Set the password of ${name}`, "Password", "The old one is refused from the next login on; connections that are open stay.", "set_password", "user password", "The password is set.")),
    action(state, "Remove password", removePassword, { isDangerous: true, why: user.mechanisms.length ? undefined : "The user has no password." }),
    action(state, "Set signing secret", () => setSecret(`Set the signing secret of ${name}`, "Secret", "RocketMQ’s clients sign with it. It is stored encrypted with the cluster’s key.", "set_signing_secret", "user signing-secret", "The signing secret is set.")),
    action(state, "Delete", deleteUser, { isDangerous: true }));

  async function refresh() {
    const [user, found] = await Promise.all([get(path, signal), searched({ principal: `User:${name}` }, signal)]);
    tokens.show(user.tokens);
    rules.show(found);
    fill(figures,
      figure("State", badge(user.enabled ? "enabled" : "disabled", user.enabled ? "good" : "warn")),
      figure("Password", user.mechanisms.length ? "set" : "none", user.mechanisms.join(", ")),
      figure("Signing secret", user.signing_secret ? "set" : "none", "of RocketMQ’s clients"),
      figure("API tokens", number(user.tokens.length)),
      figure("Rules", number(found.length)));
    drawn(actions, [user.enabled, user.mechanisms, user.signing_secret], () => actionsFor(user));
  }
  await refresh();
  return { refresh, title: name };
}

// ---- rules

async function searched(filter, signal) {
  const found = [];
  let after = 0;
  for (let page = 0; page < RULES_PAGES_MAX && after !== null; page += 1) {
    const { items, next } = await post("api/v1/security/rules/searches", { filter, after }, signal);
    found.push(...items);
    after = next;
  }
  return found;
}

const ruleText = (rule) => `${rule.permission} ${rule.principal} ${rule.operation} on ${rule.resource} ${rule.name}${rule.pattern === "prefixed" ? "…" : ""}${rule.host === "*" ? "" : ` from ${rule.host}`}`;

function addCommand(state, rule) {
  return command(state, "acl add", rule.principal.replace(/^User:/, "") || "USER", rule.operation, `${rule.resource}:${rule.name || "NAME"}`,
    rule.pattern === "prefixed" && "--prefixed", rule.permission === "deny" && "--deny", option("--host", rule.host === "*" ? null : rule.host));
}

const removeCommand = (state, rule) => command(state, "acl remove", "--principal", rule.principal, "--operation", rule.operation,
  "--resource", `${rule.resource}:${rule.name}`, "--permission", rule.permission, "--pattern", rule.pattern, "--host", rule.host);

function rulesTable(state, changed) {
  return new Table(
    [
      { name: "permission", title: "Rule", of: (row) => row.permission, show: (text) => badge(text, text === "deny" ? "bad" : "good") },
      { name: "principal", title: "Principal", of: (row) => row.principal },
      { name: "operation", title: "Operation", of: (row) => row.operation.replaceAll("_", " ") },
      { name: "resource", title: "Resource", of: (row) => `${row.resource} ${row.name}`, show: (text, row) => [`${row.resource} `, h("code", {}, row.name), row.pattern === "prefixed" ? [" ", badge("prefix")] : null] },
      { name: "host", title: "From", of: (row) => row.host },
      state.isReadOnly ? null : { name: "remove", title: "Action", isPlain: true, of: () => null, show: (_, row) => action(state, "Remove", () => removeRule(state, row, changed), { isDangerous: true, label: `Remove ${ruleText(row)}` }) },
    ].filter(Boolean),
    { search: ruleText, placeholder: "Filter rules", label: "Access rules", empty: "No rules. Super users may do all; others what the mode allows." },
  );
}

function removeRule(state, rule, onDone) {
  change({
    title: "Remove a rule",
    fields: [h("p", {}, ruleText(rule)), h("p", { class: "muted" }, rule.permission === "deny" ? "Other rules may then allow it." : "Clients that rely on it are refused from their next request on.")],
    apply: async () => {
      await post("api/v1/security/rules/removals", rule);
      return "The rule is removed.";
    },
    command: () => removeCommand(state, rule),
    verb: "Remove", isDangerous: true, onDone,
  });
}

async function showRules(place, { state, search, signal }) {
  const principal = h("input", { name: "principal", placeholder: "User:alice", value: search.get("principal") ?? "", autocomplete: "off" });
  const resource = choice([["", "any resource"], ...pairs(RESOURCES)], "", { name: "resource" });
  const named = h("input", { name: "name", placeholder: "orders", autocomplete: "off" });
  const applies = h("input", { type: "checkbox", name: "applies" });
  const table = rulesTable(state, () => refresh());
  const filter = () => ({
    principal: principal.value || null, resource: resource.value || null, name: named.value || null,
    pattern: named.value && applies.checked ? "match" : null,
  });
  const refresh = async () => table.show(await searched(filter(), signal));
  const form = h("form", { class: "form", onsubmit: (event) => { event.preventDefault(); refresh().catch((error) => toast(explained(error), "bad")); } },
    field("Principal", principal), field("Resource", resource), field("Name", named),
    checkbox("All that apply to it, prefixes and * too", applies), h("div", { class: "actions" }, h("button", {}, "Search")));
  fill(place, toolbar(state, action(state, "Add rule", () => addRule(state, refresh), { isMain: true })), card("Search", form), table.element, equivalent(command(state, "acl list"), request(state, "POST", "api/v1/security/rules/searches")));
  await refresh();
  return {};
}

function addRule(state, onDone) {
  const principal = h("input", { name: "principal", required: true, placeholder: "User:alice", autocomplete: "off" });
  const permission = choice(["allow", "deny"], "allow", { name: "permission" });
  const operation = choice(pairs(OPERATIONS), "read", { name: "operation" });
  const resource = choice(pairs(RESOURCES), "topic", { name: "resource" });
  const named = h("input", { name: "name", required: true, placeholder: "orders", autocomplete: "off" });
  const pattern = choice(PATTERNS, "literal", { name: "pattern" });
  const host = h("input", { name: "host", value: "*", required: true });
  const rule = () => ({
    principal: principalOf(principal.value), permission: permission.value, operation: operation.value,
    resource: resource.value, name: named.value, pattern: pattern.value, host: host.value,
  });
  change({
    title: "Add a rule",
    fields: h("div", { class: "form" },
      field("Principal", principal, "User:NAME; User:* for all."), field("Rule", permission), field("Operation", operation), field("Resource", resource),
      field("Name", named, "* is every one; cluster has the name kafka-cluster."), field("Names", pattern), field("From", host, "An address, or *.")),
    apply: async () => {
      await post("api/v1/security/rules", { rules: [rule()] });
      return "The rule counts from now on.";
    },
    command: () => addCommand(state, rule()),
    verb: "Add", onDone,
  });
}

// ---- may they?

async function showTest(place, { state, search }) {
  const principal = h("input", { name: "principal", required: true, placeholder: "User:alice", value: search.get("principal") ?? "", autocomplete: "off" });
  const operation = choice(pairs(OPERATIONS.slice(1)), search.get("operation") ?? "read", { name: "operation" });
  const resource = choice(pairs(RESOURCES), search.get("resource") ?? "topic", { name: "resource" });
  const named = h("input", { name: "name", required: true, placeholder: "orders", value: search.get("name") ?? "", autocomplete: "off" });
  const host = h("input", { name: "host", placeholder: "10.0.0.7", autocomplete: "off" });
  const answer = h("div", { "aria-live": "polite" });
  const same = h("div", {});
  const question = () => ({ principal: principalOf(principal.value), operation: operation.value, resource: resource.value, name: named.value, host: host.value });
  const form = h("form", { class: "form", onsubmit: async (event) => {
    event.preventDefault();
    const asked = question();
    try {
      const found = await post("api/v1/security/rules/tests", asked);
      fill(answer, h("p", {}, badge(found.allowed ? "yes" : "no", found.allowed ? "good" : "bad"), " ",
        `${asked.principal} may ${found.allowed ? "" : "not "}${asked.operation.replaceAll("_", " ")} ${asked.resource} ${asked.name}.`),
      facts([["Because", found.reason], found.rule ? ["Deciding rule", h("code", {}, ruleText(found.rule))] : null,
        ["Mode", found.mode === "enforce" ? "enforce: this counts" : `${found.mode}: a refusal ${found.mode === "audit" ? "is only reported" : "is not asked about"}`]]));
    } catch (error) {
      fill(answer, problem(error));
    }
    fill(same, equivalent(command(state, "acl test", asked.principal.replace(/^User:/, ""), asked.operation, `${asked.resource}:${asked.name}`), request(state, "POST", "api/v1/security/rules/tests")));
  } },
  field("May", principal), field("do", operation), field("on", resource), field("named", named), field("from (optional)", host, "The address of the client."), h("div", { class: "actions" }, h("button", { class: "primary" }, "Ask")));
  fill(same, equivalent(command(state, "acl test", "USER", "OPERATION", "RESOURCE:NAME"), request(state, "POST", "api/v1/security/rules/tests")));
  fill(place, card("May a principal do something?", form, answer), same);
  return {};
}

// ---- mode

const MODES = {
  open: ["No request is refused for want of a right.", "warn"],
  audit: ["Requests that the rules would refuse are carried out and reported in the audit log.", "warn"],
  enforce: ["Requests that the rules do not allow are refused.", "good"],
};
const CHANGES = {
  open: "Rules no longer count: every caller may do everything, anonymous callers too.",
  audit: "Nothing is refused. What the rules would refuse is written to the audit log, so that missing rules are found before they are enforced.",
  enforce: "From now on, requests without a rule that allows them are refused, on all nodes at once. Change to audit first, and look in the audit log for what would be refused.",
};

async function showMode(place, { state, signal }) {
  const figures = h("div", { class: "figures" });
  const notes = h("div", {});
  const actions = h("div", {});
  const without = new Table(
    [
      { name: "principal", title: "Principal", of: (row) => row.principal },
      { name: "protocols", title: "By", of: (row) => [...row.protocols].sort().join(", ") },
      { name: "count", title: "Connections", of: (row) => row.count, isNumber: true, show: number },
    ],
    { label: "Connected without a rule", empty: "Every principal that is connected to the answering node has a rule, or is a super user." },
  );
  fill(place, figures, card("Who is not bound by rules", notes), actions,
    card("Connected now, without any rule", h("p", { class: "muted" }, "When rules are enforced, these get what everyone gets. In the mode audit, the audit log of each node names what else would be refused."), without.element),
    equivalent(command(state, "security status"), request(state, "GET", "api/v1/security")));
  async function refresh() {
    const [found, connections, rules] = await Promise.all([get("api/v1/security", signal), get("lists/connections", signal), searched({}, signal)]);
    fill(figures,
      figure("Mode", badge(found.mode, MODES[found.mode]?.[1]), MODES[found.mode]?.[0]),
      figure("Users", number(found.users)), figure("Rules", number(found.rules)),
      figure("Administrator", found.has_administrator ? "yes" : "none", "who could change the mode back"));
    fill(notes,
      facts([["Super users", found.super_users.join(", ") || "none"], ["Resources without a rule", found.allow_everyone_if_no_acl_found ? "everyone may use them" : "only super users may use them"]]),
      found.older_nodes.length ? warning(`${plural(found.older_nodes.length, "node")} of an older release ${found.older_nodes.length === 1 ? "does" : "do"} not know rules: ${found.older_nodes.join(", ")}.`) : null);
    drawn(actions, [found.mode, found.has_administrator], () => toolbar(state, Object.keys(MODES).filter((each) => each !== found.mode).map((mode) =>
      action(state, `Change to ${mode}`, () => changeMode(state, mode, found.has_administrator, refresh), { isDangerous: mode !== "audit" }))));
    without.show(withoutRule(connections.items, new Set([...found.super_users, ...rules.map((each) => each.principal)])));
  }
  await refresh();
  return { refresh };
}

function changeMode(state, mode, hasAdministrator, onDone) {
  change({
    title: `Change to ${mode}`,
    fields: [
      h("p", {}, CHANGES[mode]),
      mode === "enforce" && !hasAdministrator ? warning("No super user and no rule could change the mode back: the change will be refused.") : null,
    ],
    apply: async () => {
      await post("api/v1/security/mode", { mode });
      return `The mode is ${mode}.`;
    },
    command: () => command(state, "security mode", mode),
    verb: "Change", isDangerous: mode !== "audit", onDone,
  });
}

/** Principals of connections that no rule names. */
function withoutRule(connections, known) {
  const found = new Map();
  for (const each of connections) {
    const principal = each.user || "User:ANONYMOUS";
    // Captures of the node have the rights of whom they run as.
    if (!principal.startsWith("User:") || known.has(principal)) continue;
    const row = found.get(principal) ?? { principal, protocols: new Set(), count: 0 };
    row.protocols.add(each.protocol || "not known yet");
    row.count += 1;
    found.set(principal, row);
  }
  return [...found.values()];
}

// ---- certificates and the cluster's key

async function showCertificates(place, { state, signal }) {
  const table = new Table(
    [
      { name: "listener", title: "Listener", of: (row) => row.listener },
      { name: "subject", title: "Subject", of: (row) => row.subject, show: (text) => h("code", {}, text) },
      { name: "expires", title: "Expires", of: (row) => row.expires_ms, isNumber: true, show: expiry },
      { name: "problem", title: "Problem", of: (row) => row.problem },
    ],
    { label: "Certificates", empty: "No listener of this node has a certificate: connections are not encrypted." },
  );
  const key = h("div", {});
  const reload = action(state, "Read the files again", async () => {
    table.show((await post("api/v1/security/certificates/commands", { command: "reload" })).items);
    toast("The certificates were read again.", "good");
  });
  const rotate = action(state, "Encrypt secrets anew", () => change({
    title: "Encrypt all secrets with the first key",
    fields: h("p", {}, "Secrets that are sealed with older keys are sealed anew with the first key of the nodes’ key files. All nodes must have it. Old keys may be removed from the files afterwards."),
    apply: async () => {
      await post("api/v1/security/key/commands", { command: "rotate" });
      return "The secrets are encrypted with the first key.";
    },
    command: () => command(state, "security key rotate"),
    verb: "Encrypt", onDone: refresh,
  }));
  fill(place, readOnlyNote(state), card("Certificates of the answering node", h("div", { class: "bar" }, reload), table.element), card("The cluster’s key", h("div", { class: "bar" }, rotate), key),
    equivalent(command(state, "security key status"), [request(state, "GET", "api/v1/security/certificates"), request(state, "GET", "api/v1/security/key")]));
  async function refresh() {
    const [certificates, found] = await Promise.all([get("api/v1/security/certificates", signal), get("api/v1/security/key", signal)]);
    table.show(certificates.items);
    fill(key,
      facts([
        ["Current key", found.current ? h("code", {}, found.current) : "none"],
        ["Sealed secrets", Object.entries(found.sealed).map(([id, count]) => `${number(count)} with ${id}`).join(", ") || "none"],
        ["Not encrypted", number(found.clear)],
      ]),
      found.clear ? warning("Secrets are stored in clear text: give all nodes a key file.") : null,
      h("ul", {}, found.nodes.map((each) => h("li", {}, `Node ${each.node}: `, each.problem || each.keys.join(", ") || "no key"))));
  }
  await refresh();
  return { refresh };
}

function expiry(ms) {
  if (isMissing(ms)) return NOTHING;
  const left = (ms - Date.now()) / 1000;
  const kind = left < 0 ? "bad" : left < 14 * 86400 ? "warn" : "good";
  return [time(ms), " ", badge(left < 0 ? "expired" : `in ${duration(left)}`, kind)];
}
