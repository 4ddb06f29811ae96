// The console: what it knows, when it asks for more, and which view is shown.

import { get, listen, logIn, logOut, Refused } from "./door.js";
import { make } from "./elements.js";
import { themeSwitch } from "./ownership.js";
import { forget, survey } from "./survey.js";
import { VIEWS } from "./views.js";

const LINES = 12000;
const SURVEY_MS = 2000;
const $ = (id) => document.getElementById(id);

/** Everything that the page knows; views read it, and are told when it has changed. */
export const known = {
  me: null, survey: null, surveyError: "", lines: [], missed: 0,
  members: [], base: [], baseMs: 0, changes: [], number: -1, places: new Map(),
};

let shown = null;
let state = { over: true };
let drawing = false;
let surveying = null;
let telling = 0;

function draw() {
  if (drawing) return;
  drawing = true;
  // However fast news come, the page is drawn four times a second at most.
  setTimeout(() => requestAnimationFrame(() => {
    drawing = false;
    telling = performance.now();
    head();
    shown?.update(known);
  }), Math.max(0, 250 - (performance.now() - telling)));
}

function head() {
  const { me, survey: seen } = known;
  if (!me) return;
  $("cluster").textContent = `${me.cluster}`;
  const own = seen?.members.find((one) => one.uuid === me.uuid)?.status;
  for (const id of ["state", "safe"]) $(id).hidden = !own;
  if (!own) return;
  $("state").textContent = own.cluster_state;
  $("state").className = `badge ${own.cluster_state === "active" ? "good" : "warn"}`;
  $("safe").textContent = own.cluster_safe ? "safe" : "not safe";
  $("safe").className = `badge ${own.cluster_safe ? "good" : "warn"}`;
  $("safe").title = own.cluster_unsafe_reason;
}

// -- what is asked

async function ask() {
  clearTimeout(surveying);
  const mine = state;
  try {
    known.survey = await survey();
    known.surveyError = "";
  } catch (error) {
    if (error.status === 401) return welcome("These credentials are not good any more.");
    known.surveyError = error.message;
  }
  if (mine.over) return;
  draw();
  surveying = setTimeout(ask, document.hidden ? 5 * SURVEY_MS : SURVEY_MS);
}

let asking = false;
let again = false;

async function askHistory() {
  if (asking) { again = true; return; }
  asking = true;
  try {
    const told = await get(`history?since=${known.number}`);
    const places = told.members.map(([uuid, name]) => place(uuid, name));
    const row = (one) => one.map((at) => (at < 0 ? -1 : places[at]));
    if (told.base) {
      known.base = told.base.map(row);
      known.changes = [];
    }
    known.baseMs = told.base_ms;
    for (const [at, partition, replicas] of told.changes) known.changes.push([at, partition, row(replicas)]);
    known.number = told.number;
    draw();
  } catch (error) {
    if (!(error instanceof Refused)) setTimeout(askHistory, SURVEY_MS);
  } finally {
    asking = false;
    if (again) { again = false; setTimeout(askHistory, 200); }
  }
}

function place(uuid, name) {
  if (!known.places.has(uuid)) {
    known.places.set(uuid, known.members.length);
    known.members.push({ uuid, name, place: known.members.length });
  }
  return known.places.get(uuid);
}

function heard(name, data) {
  if (name === "table") askHistory();
  if (name !== "happened") return;
  const last = known.lines.at(-1)?.number ?? 0;
  if (data.lines.length && data.lines.at(-1).number < last) known.lines = [];
  known.missed += data.missed;
  known.lines.push(...data.lines);
  if (known.lines.length > LINES) known.lines.splice(0, known.lines.length - LINES);
  draw();
}

function live(yes, error = null) {
  $("live").textContent = error ? "no live events" : yes ? "live" : "not connected";
  $("live").title = error?.message ?? "";
}

// -- views

function views() {
  const may = known.me.may;
  const acts = may.drain || may.state || may.verify;
  return VIEWS.filter((one) => (one.acts ? may.look && acts : one.id === "entry" || may.look || (may.watch && one.watch)));
}

function go() {
  const all = views();
  const chosen = all.find((one) => `#${one.id}` === location.hash) ?? all[0];
  for (const link of $("nav").children) {
    if (link.hash === `#${chosen.id}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${chosen.title} – Holdfast ${known.me.cluster}`;
  shown = chosen.make(known);
  $("view").replaceChildren(shown.element);
  shown.update(known);
}

function begin() {
  $("nav").replaceChildren(...views().map((one) => make("a", { href: `#${one.id}` }, one.title)));
  $("nav").hidden = false;
  $("leave").hidden = !known.me.asks;
  state = { over: false };
  if (known.me.may.look) { ask(); askHistory(); }
  if (known.me.may.watch) listen(heard, live, state);
  go();
  head();
}

function end() {
  forget();
  state.over = true;
  state.stop?.abort();
  clearTimeout(surveying);
  Object.assign(known, { me: null, survey: null, lines: [], members: [], base: [], changes: [], number: -1, places: new Map() });
  shown = null;
  $("nav").hidden = $("leave").hidden = true;
  $("notices").replaceChildren();
  $("live").textContent = "";
  for (const id of ["state", "safe"]) $(id).hidden = true;
}

function welcome(why = "") {
  end();
  const user = make("input", { name: "username", autocomplete: "username", autocapitalize: "none" });
  const password = make("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const said = make("p.bad", { role: "alert" }, why);
  const form = make("form.sheet.login", { onsubmit: (event) => { event.preventDefault(); logIn(user.value, password.value); start(said); } },
    make("h2", {}, "Log in"),
    make("label", {}, "User", user),
    make("label", {}, "Password", password),
    make("p.note", {}, "With a token: leave the user empty, and give the token as the password."),
    said, make("button.main", { type: "submit" }, "Log in"));
  $("view").replaceChildren(form);
  user.focus();
}

async function start(said = null) {
  try {
    known.me = await get("me");
  } catch (error) {
    const words = error.status ? error.message : "The member does not answer.";
    if (said) { said.textContent = words; return; }
    if (error.status === 401) welcome();
    else $("view").replaceChildren(make("p.empty", {}, words));
    return;
  }
  begin();
}

themeSwitch($("theme"));
addEventListener("hashchange", () => { if (known.me && location.hash !== "#main") go(); });
addEventListener("holdfast-ask", ask);
$("leave").addEventListener("click", () => { logOut(); welcome(); });
start();
