// Adds a capture in four steps: the address, what the database says, what is captured, a summary.

import { post } from "../api.js";
import { command, equivalent, option, request } from "../commands.js";
import { action, choice, field, readOnlyNote } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { drawFindings } from "../findings.js";
import { link, problem, to, toast } from "../parts.js";
import { TablePicker, listed } from "../table-picker.js";

const STEPS = ["Address", "Check", "What is captured", "Summary"];
const PASSWORDS = [["file", "In a file of the node"], ["env", "In a variable of the node"], ["typed", "Typed here"], ["none", "None"]];
const HINTS = {
  file: "An absolute path on every node that may run the capture.",
  env: "The name of a variable of the node’s process.",
  typed: "Stored with the definition, encrypted if the cluster has a key, and never shown again.",
};

const quoted = (value) => (/^[^\s'\\]+$/.test(value) ? value : `'${value.replace(/['\\]/g, "\\$&")}'`);

export async function showWizard(place, { state, signal }) {
  const input = (name, value, properties = {}) => h("input", { name, value, autocomplete: "off", spellcheck: "false", ...properties });
  const name = input("name", "", { required: true, pattern: "[a-z0-9][a-z0-9_\\-]{0,39}", placeholder: "shop" });
  const host = input("host", "", { required: true, placeholder: "db.example" });
  const port = input("port", "5432", { inputmode: "numeric", pattern: "[0-9]{1,5}" });
  const database = input("dbname", "", { required: true, placeholder: "shop" });
  const user = input("user", "", { required: true, placeholder: "capture" });
  const kind = choice(PASSWORDS, "file", { name: "kind", onchange: () => drawPassword() });
  const secret = input("secret", "");
  const secretField = h("div", {});
  const tls = choice([["verify-full", "Required, certificate checked"], ["require", "Required"], ["prefer", "If the database offers it"], ["disable", "Never"]], "prefer", { name: "sslmode" });
  const tables = h("textarea", { name: "tables", rows: 3, required: true, placeholder: "orders\nsales.*" });
  const envelope = choice([["pgcdc", "pgcdc: the row, its key and its position"], ["debezium", "debezium: as Debezium’s connector"], ["flat", "flat: the row alone"]], "pgcdc", { name: "envelope" });
  const snapshot = choice([["initial", "Existing rows first, then changes"], ["never", "Changes only"]], "initial", { name: "snapshot" });
  const partitions = input("partitions", "8", { inputmode: "numeric", pattern: "[0-9]{1,5}" });
  const title = h("h2", { tabindex: "-1" });
  const steps = h("ol", { class: "steps" });
  const content = h("div", {});
  const said = h("div", { "aria-live": "polite" });
  const same = h("div", {});
  const picker = new TablePicker(tables, signal);
  let step = 0;

  function drawPassword() {
    secret.type = kind.value === "typed" ? "password" : "text";
    secret.placeholder = { file: "/etc/dragoman/shop.password", env: "SHOP_PASSWORD" }[kind.value] ?? "";
    fill(secretField, kind.value === "none" ? null : field({ file: "File", env: "Variable", typed: "Password" }[kind.value], secret, HINTS[kind.value]));
  }

  function address(withSecret = true) {
    const password = { file: `file:${secret.value}`, env: `env:${secret.value}`, typed: withSecret ? secret.value : "********", none: "" }[kind.value];
    const values = { host: host.value, port: port.value, dbname: database.value, user: user.value, password, sslmode: tls.value };
    return Object.entries(values).filter(([, value]) => value).map(([key, value]) => `${key}=${quoted(value)}`).join(" ");
  }

  function definition(chosen) {
    return { name: name.value, dsn: address(), tables: chosen, envelope: envelope.value, snapshot: snapshot.value, partitions: Number(partitions.value) };
  }

  const unless = (usual, input) => (input.value === usual ? null : input.value);

  /** The address is on the standard input where it has a password. */
  const addCommand = () => command(state, "cdc add", name.value || "NAME", "--dsn", kind.value === "typed" ? "-" : address(),
    "--tables", listed(tables.value).join(",") || "TABLES", option("--envelope", unless("pgcdc", envelope)),
    option("--snapshot", unless("initial", snapshot)), option("--partitions", unless("8", partitions)));

  async function check(chosen) {
    fill(said, h("p", { class: "muted" }, "Asking the database…"));
    const { items } = await post("api/v1/capture-checks", { definition: definition(chosen) }, signal);
    fill(said, drawFindings(items));
    return items.every((each) => each.level !== "problem");
  }

  const back = () => h("button", { type: "button", onclick: () => go(step - 1) }, "Back");
  const next = (text) => h("button", { class: "primary" }, text);
  const form = h("form", { class: "card wizard", onsubmit: async (event) => {
    event.preventDefault();
    try {
      await forward();
    } catch (error) {
      fill(said, problem(error));
    }
  } }, title, content, said);

  async function forward() {
    if (step === 0) go(1);
    else if (step === 1) go(2);
    else if (step === 2) {
      if (await check(listed(tables.value))) go(3);
    }
  }

  function go(wanted) {
    step = wanted;
    fill(steps, STEPS.map((text, index) => h("li", { "aria-current": index === step ? "step" : null }, text)));
    title.textContent = `${step + 1}. ${STEPS[step]}`;
    fill(said);
    fill(content, DRAW[step]());
    fill(same, equivalent(addCommand(), request(state, "POST", "api/v1/captures")));
    if (step) title.focus();
    if (step === 2 && !state.isReadOnly) picker.load(definition(["*"]));
  }

  const DRAW = [
    () => [
      h("div", { class: "form" },
        field("Name of the capture", name, "At most 40 of a–z, 0–9, - and _. Slot and publication are named after it."),
        field("Host", host, "As the nodes reach it."), field("Port", port), field("Database", database),
        field("User", user, "A role that may log in, replicate, and read the tables."),
        field("Password", kind), secretField, field("TLS", tls)),
      h("div", { class: "actions" }, next("Next")),
    ],
    () => [
      h("p", {}, "The node connects to the database and looks at what a capture needs: settings, the role’s rights, and keys of tables in ", h("code", {}, "public"), "."),
      h("div", { class: "actions" }, back(),
        action(state, "Check the database", () => check(["*"]).catch((error) => fill(said, problem(error)))),
        next("Next")),
    ],
    () => [
      picker.element,
      field("Tables", tables, "schema.table, one to a line or separated by commas; * and ? match, the schema is public by default."),
      h("div", { class: "form" }, field("Envelope", envelope), field("Begin with", snapshot), field("Partitions of new topics", partitions)),
      readOnlyNote(state),
      h("div", { class: "actions" }, back(), h("button", { class: "primary", disabled: state.isReadOnly }, "Check and continue")),
    ],
    () => [
      h("p", {}, "This will be added. It creates a publication and a replication slot in the database, from which WAL is retained until it is captured."),
      h("pre", {}, JSON.stringify({ ...definition(listed(tables.value)), dsn: address(false) }, null, 2)),
      h("p", { class: "muted" }, "The same on the command line", kind.value === "typed" ? ", with the address on the standard input:" : ":"),
      h("pre", {}, addCommand()),
      h("div", { class: "actions" }, back(), action(state, "Add the capture", async () => {
        await post("api/v1/captures", definition(listed(tables.value)), signal);
        toast(`${name.value} is added.`);
        location.hash = to("captures", name.value);
      }, { isMain: true })),
    ],
  ];

  drawPassword();
  fill(place, h("p", { class: "crumb" }, link("#/captures", "Captures")), h("h1", {}, "Add a capture"), steps, form, same);
  go(0);
  return { title: "Add a capture" };
}
