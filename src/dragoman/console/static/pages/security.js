// Users, access rules, and what they allow.

import { api, get, post, remove } from "../api.js";
import { action, choice, field, formDialog, readOnlyNote, showDialog } from "../forms.js";
import { drawn, fill, h } from "../dom.js";
import { duration, number, plural, time } from "../format.js";
import { badge, card, equivalent, facts, figure, link, shell, tabs, to, toast } from "../parts.js";
import { Table } from "../table.js";

const VIEWS = [["", "Users"], ["rules", "Rules"], ["test", "May they?"], ["mode", "Mode"], ["certificates", "Certificates and key"]];
const OPERATIONS = ["all", "read", "write", "create", "delete", "alter", "describe", "cluster_action", "describe_configs", "alter_configs", "idempotent_write"];
const RESOURCES = ["topic", "group", "cluster", "transactional_id", "user", "capture", "pipeline"];
const PATTERNS = [["literal", "exactly this name, or *"], ["prefixed", "names that begin so"]];
const RULES_PAGES_MAX = 20;
const pairs = (values) => values.map((each) => [each, each.replaceAll("_", " ")]);

export async function show(place, context) {
  const [view = "", name] = context.parts;
  if (view === "users" && name) return showUser(place, context, name);
  const draw = { "": showUsers, rules: showRules, test: showTest, mode: showMode, certificates: showCertificates }[view];
  if (!draw) {
    fill(place, h("h1", {}, "Security"), h("p", {}, "There is no such view."));
    return null;
  }
  const content = h("div", {});
  fill(place, h("h1", {}, "Security"), tabs("#/security", VIEWS, view), readOnlyNote(context.state), content);
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
  const create = action("Create a user …", state, async () => {
    const name = h("input", { name: "name", required: true, autocomplete: "off" });
    const password = h("input", { name: "password", type: "password", autocomplete: "new-password" });
    const done = await formDialog("Create a user", [
      field("Name", name),
      field("Password", password, "Stored as SCRAM verifiers. Empty: no password, for a user with certificates or tokens."),
      h("p", { class: "muted" }, "A new user has no rights of its own: add rules for it."),
    ], "Create", () => post("api/v1/security/users", { name: name.value, password: password.value || null }));
    if (done) {
      toast(`${done.name} is created.`);
      location.hash = to("security", "users", done.name);
    }
  }, { kind: "primary" });
  fill(place, h("div", { class: "bar" }, create), table.element, equivalent(`dragoman user list --server ${state.server}`, `GET ${state.server}/api/v1/security/users`));
  const refresh = async () => table.show((await get("lists/users", signal)).items);
  await refresh();
  return { refresh };
}

async function showUser(place, { state, signal }, name) {
  const path = api("security", "users", name);
  const figures = h("div", { class: "figures" });
  const actions = h("div", { class: "bar", role: "group", "aria-label": "Actions" });
  const tokens = new Table(
    [
      { name: "id", title: "Token", of: (row) => row.token_id, show: (text) => h("span", { class: "mono" }, text) },
      { name: "label", title: "Label", of: (row) => row.label },
      { name: "rights", title: "Good for", of: (row) => (row.read_only ? "reading" : "all that the user may do") },
      { name: "created", title: "Made", of: (row) => row.created_ms, isNumber: true, show: (ms) => time(ms) },
      { name: "expires", title: "Expires", of: (row) => row.expires_ms, isNumber: true, show: (ms) => (ms === null ? "never" : time(ms)) },
      { name: "revoke", title: "Revoke", of: () => "", show: (_, row) => action("Revoke …", state, () => formDialog(`Revoke token ${row.token_id}?`, h("p", {}, "Requests with it are refused from the next one on."), "Revoke", async () => { await remove(`${path}/tokens/${encodeURIComponent(row.token_id)}`); await refresh(); }, "danger")) },
    ],
    { label: "API tokens", empty: "The user has no API tokens." },
  );
  const rules = rulesTable(state, () => refresh());
  const make = action("Make a token …", state, async () => {
    const label = h("input", { name: "label", placeholder: "dashboards" });
    const readOnly = h("input", { type: "checkbox", name: "read_only", checked: true });
    const life = choice({ name: "life", chosen: "7776000000" }, [["86400000", "1 day"], ["2592000000", "30 days"], ["7776000000", "90 days"], ["31536000000", "1 year"], ["", "never"]]);
    const made = await formDialog(`Make an API token for ${name}`, [
      field("Label", label), h("label", { class: "inline" }, readOnly, "For reading only"), field("Expires after", life),
    ], "Make", () => post(`${path}/tokens`, { label: label.value, read_only: readOnly.checked, lifetime_ms: life.value ? Number(life.value) : null }));
    if (made) {
      showDialog("The token", [h("p", {}, "Copy it now: it is not stored and cannot be shown again."), h("pre", { class: "secret" }, made.token),
        h("button", { type: "button", onclick: () => navigator.clipboard?.writeText(made.token) }, "Copy")]);
      await refresh();
    }
  });
  fill(place, h("p", { class: "crumb" }, link("#/security", "Users")), h("h1", {}, name), readOnlyNote(state), figures, actions,
    card("API tokens", h("div", { class: "bar" }, make), tokens.element), card("Rules for this user", rules.element),
    equivalent(`dragoman user describe ${shell(name)} --server ${state.server}`, `GET ${state.server}/${path}`));

  const command = async (body, said) => {
    await post(`${path}/commands`, body);
    toast(said);
    await refresh();
    return true;
  };
  const secretDialog = (title, label, text, body, said) => {
    const secret = h("input", { type: "password", name: "secret", required: true, autocomplete: "new-password" });
    return formDialog(title, [h("p", {}, text), field(label, secret)], "Set", () => command({ command: body, secret: secret.value }, said));
  };
  let drawn = "";
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
    const key = JSON.stringify([user.enabled, user.mechanisms, user.signing_secret]);
    if (key === drawn) return;
    drawn = key;
    fill(actions,
      user.enabled
        ? action("Disable …", state, () => formDialog(`Disable ${name}?`, h("p", {}, "Its connections are closed, and its logins, tokens and signatures are refused until it is enabled again."), "Disable", () => command({ command: "disable" }, `${name} is disabled.`), "danger"))
        : action("Enable", state, () => command({ command: "enable" }, `${name} is enabled.`), { kind: "primary" }),
      action("Set password …", state, () => secretDialog(`Set the password of ${name}`, "Password", "The old one is refused from the next login on; connections that are open stay.", "set_password", "The password is set.")),
      action("Remove password …", state, () => formDialog(`Remove the password of ${name}?`, h("p", {}, "The user can then log in by certificate or token only."), "Remove", () => command({ command: "remove_password" }, "The password is removed."), "danger"), { reason: user.mechanisms.length ? "" : "The user has no password." }),
      action("Set signing secret …", state, () => secretDialog(`Set the signing secret of ${name}`, "Secret", "RocketMQ’s clients sign with it. It is stored encrypted with the cluster’s key.", "set_signing_secret", "The signing secret is set.")),
      action("Delete …", state, async () => {
        const typed = h("input", { name: "name", required: true, autocomplete: "off" });
        const done = await formDialog(`Delete ${name}?`, [h("p", {}, "Its connections are closed and its tokens revoked. Rules for it stay, and would count for a new user of this name."), field("Type the name of the user", typed)], "Delete", async () => {
          if (typed.value !== name) throw new Error("That is not the name of the user.");
          await remove(path);
          return true;
        }, "danger");
        if (done) location.hash = "#/security";
      }));
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

function ruleCommand(verb, rule, server) {
  const words = ["dragoman acl", verb, shell(rule.principal.replace(/^User:/, "")), rule.operation, shell(`${rule.resource}:${rule.name}`)];
  if (rule.pattern === "prefixed") words.push("--prefixed");
  if (rule.permission === "deny") words.push("--deny");
  if (rule.host !== "*") words.push("--host", shell(rule.host));
  return [...words, "--server", server].join(" ");
}

function rulesTable(state, changed) {
  return new Table(
    [
      { name: "permission", title: "Rule", of: (row) => row.permission, show: (text) => badge(text, text === "deny" ? "bad" : "good") },
      { name: "principal", title: "Principal", of: (row) => row.principal },
      { name: "operation", title: "Operation", of: (row) => row.operation.replaceAll("_", " ") },
      { name: "resource", title: "Resource", of: (row) => `${row.resource} ${row.name}`, show: (text, row) => [`${row.resource} `, h("code", {}, row.name), row.pattern === "prefixed" ? [" ", badge("prefix")] : null] },
      { name: "host", title: "From", of: (row) => row.host },
      { name: "remove", title: "Remove", of: () => "", show: (_, row) => action("Remove …", state, () => formDialog("Remove this rule?", [h("p", {}, ruleText(row)), h("p", { class: "muted" }, row.permission === "deny" ? "Other rules may then allow it." : "Clients that rely on it are refused from their next request on.")], "Remove", async () => { await post("api/v1/security/rules/removals", row); await changed(); return true; }, "danger")) },
    ],
    { search: ruleText, placeholder: "Filter rules", label: "Access rules", empty: "No rules. Super users may do all; others what the mode allows." },
  );
}

async function showRules(place, { state, search, signal }) {
  const principal = h("input", { name: "principal", placeholder: "User:alice", value: search.get("principal") ?? "", autocomplete: "off" });
  const resource = choice({ name: "resource" }, [["", "any resource"], ...pairs(RESOURCES)]);
  const named = h("input", { name: "name", placeholder: "orders", autocomplete: "off" });
  const applies = h("input", { type: "checkbox", name: "applies" });
  const table = rulesTable(state, () => refresh());
  const filter = () => ({
    principal: principal.value || null, resource: resource.value || null, name: named.value || null,
    pattern: named.value && applies.checked ? "match" : null,
  });
  const refresh = async () => table.show(await searched(filter(), signal));
  const form = h("form", { class: "form", onsubmit: (event) => { event.preventDefault(); refresh().catch((error) => toast(error.message, "bad")); } },
    field("Principal", principal), field("Resource", resource), field("Name", named),
    h("label", { class: "inline" }, applies, "All that apply to it, prefixes and * too"), h("div", { class: "actions" }, h("button", {}, "Search")));
  const add = action("Add a rule …", state, async () => {
    if (await addRule(state)) await refresh();
  }, { kind: "primary" });
  fill(place, card("Search", form), h("div", { class: "bar" }, add), table.element, equivalent(`dragoman acl list --server ${state.server}`, `POST ${state.server}/api/v1/security/rules/searches`));
  await refresh();
  return {};
}

function addRule(state) {
  const principal = h("input", { name: "principal", required: true, placeholder: "User:alice", autocomplete: "off" });
  const permission = choice({ name: "permission" }, [["allow", "allow"], ["deny", "deny"]]);
  const operation = choice({ name: "operation", chosen: "read" }, pairs(OPERATIONS));
  const resource = choice({ name: "resource" }, pairs(RESOURCES));
  const named = h("input", { name: "name", required: true, placeholder: "orders", autocomplete: "off" });
  const pattern = choice({ name: "pattern" }, PATTERNS);
  const host = h("input", { name: "host", value: "*", required: true });
  const same = h("code", {});
  const rule = () => ({
    principal: principal.value.includes(":") ? principal.value : `User:${principal.value}`, permission: permission.value, operation: operation.value,
    resource: resource.value, name: named.value, pattern: pattern.value, host: host.value,
  });
  const draw = () => {
    const { principal: who, name, ...more } = rule();
    same.textContent = ruleCommand("add", { ...more, principal: who === "User:" ? "USER" : who, name: name || "NAME" }, state.server);
  };
  const content = h("div", { class: "form", oninput: draw },
    field("Principal", principal, "User:NAME; User:* for all."), field("Rule", permission), field("Operation", operation), field("Resource", resource),
    field("Name", named, "* is every one; cluster has the name kafka-cluster."), field("Names", pattern), field("From", host, "An address, or *."));
  draw();
  return formDialog("Add a rule", [content, h("p", {}, same)], "Add", async () => {
    await post("api/v1/security/rules", { rules: [rule()] });
    toast("The rule counts from now on.");
    return true;
  });
}

// ---- may they?

async function showTest(place, { state, search }) {
  const principal = h("input", { name: "principal", required: true, placeholder: "User:alice", value: search.get("principal") ?? "", autocomplete: "off" });
  const operation = choice({ name: "operation", chosen: search.get("operation") ?? "read" }, pairs(OPERATIONS.slice(1)));
  const resource = choice({ name: "resource", chosen: search.get("resource") ?? "topic" }, pairs(RESOURCES));
  const named = h("input", { name: "name", required: true, placeholder: "orders", value: search.get("name") ?? "", autocomplete: "off" });
  const host = h("input", { name: "host", placeholder: "10.0.0.7", autocomplete: "off" });
  const answer = h("div", { "aria-live": "polite" });
  const same = h("div", {});
  const question = () => ({ principal: principal.value.includes(":") ? principal.value : `User:${principal.value}`, operation: operation.value, resource: resource.value, name: named.value, host: host.value });
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
      fill(answer, h("p", { class: "problem", role: "alert" }, error.message));
    }
    fill(same, equivalent(`dragoman acl test ${shell(asked.principal.replace(/^User:/, ""))} ${asked.operation} ${shell(`${asked.resource}:${asked.name}`)} --server ${state.server}`, `POST ${state.server}/api/v1/security/rules/tests`));
  } },
  field("May", principal), field("do", operation), field("on", resource), field("named", named), field("from (optional)", host, "The address of the client."), h("div", { class: "actions" }, h("button", { class: "primary" }, "Ask")));
  fill(same, equivalent(`dragoman acl test USER OPERATION RESOURCE:NAME --server ${state.server}`, `POST ${state.server}/api/v1/security/rules/tests`));
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
  const actions = h("div", { class: "bar", role: "group", "aria-label": "Actions" });
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
    equivalent(`dragoman security status --server ${state.server}`, `GET ${state.server}/api/v1/security`));
  async function refresh() {
    const [found, connections, rules] = await Promise.all([get("api/v1/security", signal), get("lists/connections", signal), searched({}, signal)]);
    fill(figures,
      figure("Mode", badge(found.mode, MODES[found.mode]?.[1]), MODES[found.mode]?.[0]),
      figure("Users", number(found.users)), figure("Rules", number(found.rules)),
      figure("Administrator", found.has_administrator ? "yes" : "none", "who could change the mode back"));
    fill(notes,
      facts([["Super users", found.super_users.join(", ") || "none"], ["Resources without a rule", found.allow_everyone_if_no_acl_found ? "everyone may use them" : "only super users may use them"]]),
      found.older_nodes.length ? h("p", { class: "warning" }, badge("warning", "warn"), ` ${plural(found.older_nodes.length, "node")} of an older release ${found.older_nodes.length === 1 ? "does" : "do"} not know rules: ${found.older_nodes.join(", ")}.`) : null);
    drawn(actions, [found.mode, found.has_administrator], () => Object.keys(MODES).filter((each) => each !== found.mode).map((mode) =>
      action(`Change to ${mode} …`, state, () => formDialog(`Change to ${mode}?`, [
        h("p", {}, CHANGES[mode]),
        mode === "enforce" && !found.has_administrator ? h("p", { class: "warning" }, "No super user and no rule could change the mode back: the change will be refused.") : null,
      ], `Change to ${mode}`, async () => { await post("api/v1/security/mode", { mode }); await refresh(); return true; }, mode === "audit" ? "primary" : "danger"))));
    without.show(withoutRule(connections.items, new Set([...found.super_users, ...rules.map((each) => each.principal)])));
  }
  await refresh();
  return { refresh };
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
  const reload = action("Read the files again", state, async () => {
    table.show((await post("api/v1/security/certificates/commands", { command: "reload" })).items);
    toast("The certificates were read again.");
  });
  const rotate = action("Encrypt secrets anew …", state, () => formDialog("Encrypt all secrets with the first key?", h("p", {}, "Secrets that are sealed with older keys are sealed anew with the first key of the nodes’ key files. All nodes must have it. Old keys may be removed from the files afterwards."), "Encrypt", async () => { await post("api/v1/security/key/commands", { command: "rotate" }); await refresh(); return true; }));
  fill(place, card("Certificates of the answering node", h("div", { class: "bar" }, reload), table.element), card("The cluster’s key", h("div", { class: "bar" }, rotate), key),
    equivalent(`dragoman security certificates --server ${state.server}`, `GET ${state.server}/api/v1/security/certificates`));
  async function refresh() {
    const [certificates, found] = await Promise.all([get("api/v1/security/certificates", signal), get("api/v1/security/key", signal)]);
    table.show(certificates.items);
    fill(key,
      facts([
        ["Current key", found.current ? h("code", {}, found.current) : "none"],
        ["Sealed secrets", Object.entries(found.sealed).map(([id, count]) => `${number(count)} with ${id}`).join(", ") || "none"],
        ["Not encrypted", number(found.clear)],
      ]),
      found.clear ? h("p", { class: "warning" }, badge("warning", "warn"), " Secrets are stored in clear text: give all nodes a key file.") : null,
      h("ul", {}, found.nodes.map((each) => h("li", {}, `Node ${each.node}: `, each.problem || each.keys.join(", ") || "no key"))));
  }
  await refresh();
  return { refresh };
}

function expiry(ms) {
  if (ms === null || ms === undefined) return "–";
  const left = (ms - Date.now()) / 1000;
  const kind = left < 0 ? "bad" : left < 14 * 86400 ? "warn" : "good";
  return [time(ms), " ", badge(left < 0 ? "expired" : `in ${duration(left)}`, kind)];
}
