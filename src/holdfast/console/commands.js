// Every operator action, with a form made from its declaration (`GET /v1/actions`).

import { confirm, notice } from "./dialogs.js";
import { act, actions } from "./door.js";
import { make } from "./elements.js";
import { report } from "./orders.js";

const EVERY = "every member";
const NAMED = ["the member that is named", "the members that are named", "every member, or those that are named"];

/** The schema of a field without the alternative null. */
const plain = (schema) => (schema.anyOf ? { ...schema, ...schema.anyOf.find((one) => one.type !== "null") } : schema);

/** The input of a field, and `value()`: what it holds, or undefined if it is empty. */
function input(name, given, required, uuidOf) {
  const schema = plain(given);
  const choices = schema.enum?.filter((one) => one !== null);
  if (choices) {
    const field = make("select", { name }, ...(required ? [] : [make("option", { value: "" }, "")]), ...choices.map((one) => make("option", { value: one }, String(one))));
    return { field, value: () => field.value || undefined };
  }
  if (schema.type === "boolean") {
    const field = make("input", { name, type: "checkbox" });
    return { field, value: () => field.checked || undefined };
  }
  const field = make("input", { name, required, autocomplete: "off", spellcheck: "false" });
  const words = () => field.value.split(/\s+/).filter(Boolean);
  const number = (text) => (/^-?\d+$/.test(text) ? Number(text) : text);
  const read = {
    object: () => Object.fromEntries(words().map((one) => [one.split("=", 1)[0], one.slice(one.indexOf("=") + 1)])),
    array: () => words().map((one) => (plain(schema.items).type === "integer" ? number(one) : uuidOf(one))),
    integer: () => number(field.value.trim()),
  }[schema.type] ?? (() => (given.anyOf?.some((one) => one.type === "integer") ? number(field.value.trim()) : field.value));
  if (schema.type === "object") field.placeholder = "KEY=VALUE KEY=VALUE";
  return { field, value: () => (field.value.trim() ? read() : undefined) };
}

/** Ask for confirmation, and carry the action out at each of these members (none: at that of the page). */
async function carryOut(action, fields, members) {
  const given = Object.entries(fields).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
  const yes = await confirm({
    title: action.name, button: "Carry it out", danger: action.asks, typed: action.asks ? action.name : "",
    words: [action.help, ...(given ? [`With ${given}.`] : []), ...(members.length ? [`At ${members.map((one) => one.name).join(", ")}.`] : [])],
  });
  if (!yes) return;
  await Promise.all((members.length ? members : [null]).map(async (member) => {
    const subject = member ? `${action.name} at ${member.name}: ` : `${action.name}: `;
    const say = notice(`${subject}sent`);
    const options = { timeout_ms: action.timeout_ms, ...(member && { member: member.uuid }) };
    report(say, await act(action.name, fields, options), ({ message }) => `${subject}${message || "done"}`, subject);
  }));
  dispatchEvent(new Event("holdfast-ask"));
}

export function commands(known) {
  const present = () => known.survey?.members ?? [];
  const uuidOf = (name) => present().find((one) => one.name === name)?.uuid ?? name;
  const chosen = make("select", { "aria-label": "Command", onchange: () => draw() });
  const form = make("form.fields");
  const element = make("div.sheet", {}, make("h2", {}, "Commands"), make("div.tools", {}, chosen), form);
  let all = [];
  function draw() {
    const action = all.find((one) => one.name === chosen.value);
    const { properties, required } = action.fields;
    const inputs = Object.entries(properties).map(([name, schema]) => ({ name, schema, ...input(name, schema, required.includes(name), uuidOf) }));
    const where = NAMED.includes(action.sent_to) && make("select", { name: "member" },
      ...(action.sent_to.startsWith(EVERY) ? [make("option", { value: "" }, EVERY)] : []), ...present().map((one) => make("option", { value: one.uuid }, one.name)));
    form.replaceChildren(make("p", {}, action.help), ...(where ? [make("label", {}, "Member", where)] : []),
      ...inputs.map(({ name, schema, field }) => make("label", { title: schema.description }, name.replaceAll("_", " "), field)),
      make("button.main", { type: "submit" }, action.name));
    form.onsubmit = (event) => {
      event.preventDefault();
      const fields = Object.fromEntries(inputs.map((one) => [one.name, one.value()]).filter(([, value]) => value !== undefined));
      const members = where?.value ? present().filter((one) => one.uuid === where.value) : action.sent_to.startsWith(EVERY) ? present() : [];
      carryOut(action, fields, members);
    };
  }
  const load = async () => {
    try {
      all = (await actions()).filter((one) => !one.query);
      chosen.replaceChildren(...all.map((one) => make("option", { value: one.name }, one.name)));
      draw();
    } catch (error) {
      form.replaceChildren(make("p.bad", {}, error.message));
    }
  };
  let loaded = false;
  return { element, update() {
    if (!loaded && known.survey) { loaded = true; load(); }
  } };
}
