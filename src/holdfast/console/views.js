// The views. Each is made when it is chosen, and told when something has changed.

import { commands } from "./commands.js";
import { REJECTED, post } from "./door.js";
import { bytes, card, clock, count, make, Rows } from "./elements.js";
import { askSafe, changeState, drain, stateNames, verifyCopies } from "./orders.js";
import { colourName, legend, OwnershipNow, OwnershipOverTime, rowsAt, span } from "./ownership.js";

const swatch = (known, uuid) => {
  const place = known.places.get(uuid);
  const found = make("span.swatch", { "aria-hidden": "true" });
  if (place !== undefined) found.style.background = `var(${colourName(place)})`;
  return found;
};
const named = (known, uuid) => known.survey?.members.find((one) => one.uuid === uuid)?.name
  ?? known.members[known.places.get(uuid)]?.name ?? (uuid ? uuid.slice(0, 8) : "nobody");
const master = (known) => known.survey?.members.find((one) => one.status?.is_master)?.status;

// -- members

function members(known) {
  const { may, uuid: me } = known.me;
  const figures = make("div.cards");
  const why = make("p.note", { hidden: true });
  const state = make("select", { "aria-label": "State of the cluster" }, ...stateNames.map((one) => make("option", { value: one }, one)));
  const tools = make("div.tools", {},
    make("button", { type: "button", onclick: askSafe }, "Is it safe?"),
    may.verify && make("button", { type: "button", onclick: verifyCopies }, "Verify copies"),
    may.state && make("label", {}, "Make the cluster", state),
    may.state && make("button", { type: "button", id: "change-state", onclick: () => changeState(state.value) }, "Change"));
  const meter = (status) => {
    const { used_bytes: used, limit_bytes: limit } = status?.memory ?? {};
    if (!limit) return "–";
    const share = make("i");
    share.style.width = `${Math.min(100, (used / limit) * 100)}%`;
    return make("span", {}, make("span.meter", { "aria-hidden": "true" }, share), `${bytes(used)} of ${bytes(limit)}`);
  };
  const mark = (words) => make("span.mark", {}, words);
  const table = new Rows({
    caption: "Members", empty: "No members are known yet.", filter: "Filter members", size: 50,
    columns: [
      { title: "Member", value: (one) => one.name, show: (one) => make("span", {}, make("span.together", {}, swatch(known, one.uuid), make("b", {}, one.name)),
        one.uuid === me && mark("this one"), one.master && mark("master"), one.lite && mark("lite"), one.leaving && mark("leaving"), one.outside && mark("outside the baseline")) },
      { title: "Address", value: (one) => (one.host ? `${one.host}:${one.client_port}` : "") },
      { title: "Primaries", number: true, value: (one) => one.primaries, show: (one) => count(one.primaries) },
      { title: "Backups", number: true, value: (one) => one.backups, show: (one) => count(one.backups) },
      { title: "Entries", number: true, value: (one) => one.status?.entries.primary, show: (one) => (one.status ? count(one.status.entries.primary) : "–") },
      { title: "Operations a second", number: true, value: (one) => one.rates?.operations, show: (one) => (one.rates ? count(Math.round(one.rates.operations)) : "–") },
      { title: "p99", number: true, value: (one) => one.rates?.p99_ms, show: (one) => (one.rates?.p99_ms ? `${one.rates.p99_ms.toFixed(1)} ms` : "–") },
      { title: "Clients", number: true, value: (one) => one.load?.clients, show: (one) => (one.load ? count(one.load.clients) : "–") },
      { title: "Memory", value: (one) => one.status?.memory?.used_bytes, show: (one) => meter(one.status) },
      { title: "Says", value: (one) => one.error || one.status?.unsafe_reason || "", show: (one) => (one.status
        ? make("span", { class: one.status.safe ? "good" : "warn", title: one.status.unsafe_reason }, one.status.safe ? "safe" : one.status.unsafe_reason)
        : make("span.bad", {}, `silent: ${one.error || "not asked yet"}`)) },
      ...(may.drain ? [{ title: "Orders", show: (one) => (one.leaving ? "" : make("button", {
        type: "button", "data-focus": one.uuid, "aria-label": `Drain ${one.name}`, onclick: () => drain(one, known) }, "Drain")) }] : []),
    ],
  });
  table.search.hidden = true;
  const asked = make("p.note");
  const element = make("div", {}, figures, why, tools, make("div.sheet", {}, table.element, asked));
  let chosen = false;
  return { element, update() {
    const { survey, surveyError } = known;
    asked.textContent = surveyError ? `The members could not be asked: ${surveyError}` : survey ? `Asked at ${clock(survey.at_ms)}` : "The members are being asked";
    if (!survey) return;
    const own = survey.members.find((one) => one.uuid === me)?.status;
    const leader = master(known) ?? own;
    table.search.hidden = survey.members.length < 10;
    const entries = survey.members.reduce((sum, one) => sum + (one.status?.entries.primary ?? 0), 0);
    const moving = leader ? leader.migrations.active + leader.migrations.queued : 0;
    figures.replaceChildren(
      card(survey.members.length, "members"), card(count(known.me.partitions), "partitions"), card(count(entries), "entries"),
      card(count(survey.maps.length), "maps"), card(count(moving), "migrations left"),
      card(own?.cluster_safe ? "yes" : "no", "safe", own?.cluster_safe ? "fine" : "alarm"));
    why.hidden = !own?.cluster_unsafe_reason;
    why.textContent = own?.cluster_unsafe_reason ? `Not safe: ${own.cluster_unsafe_reason}` : "";
    if (!chosen && own) { state.value = own.cluster_state === "active" ? "frozen" : "active"; chosen = true; }
    table.set(survey.members);
  } };
}

// -- what the whole cluster agrees on, and what runs in it

function cluster(known) {
  const sheet = (title) => { const element = make("div"); return [element, make("div.sheet", {}, make("h2", {}, title), element)]; };
  const [store, storeSheet] = sheet("Metastore");
  const [owners, ownersSheet] = sheet("Baseline");
  const [running, runningSheet] = sheet("Transactions");
  const [cuts, cutsSheet] = sheet("Exports and backups");
  const zones = new Rows({
    caption: "Zones", empty: "There are no zones.", size: 20,
    columns: [
      { title: "Zone", value: (one) => one.name },
      { title: "Partitions", number: true, value: (one) => one.settings.partitions },
      { title: "Replicas", number: true, value: (one) => one.settings.replicas },
      { title: "No leader", number: true, value: (one) => one.leaderless, show: (one) => make("span", { class: one.leaderless ? "bad" : "" }, count(one.leaderless)) },
      { title: "Moving", number: true, value: (one) => one.moving },
      { title: "Under-replicated", number: true, value: (one) => one.under_replicated, show: (one) => make("span", { class: one.under_replicated ? "warn" : "" }, count(one.under_replicated)) },
      { title: "Members that may hold it", value: (one) => one.eligible_members.join(", ") },
    ],
  });
  zones.search.hidden = true;
  const facts = (element, pairs) => element.replaceChildren(make("dl.facts", {}, ...pairs.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])));
  const note = (element, words) => element.replaceChildren(make("p.note", {}, words));
  const element = make("div", {}, make("div.sheet", {}, make("h2", {}, "Zones"), zones.element), storeSheet, ownersSheet, runningSheet, cutsSheet);
  return { element, update() {
    const told = known.survey?.members.map((one) => one.status).filter(Boolean) ?? [];
    const own = told.find((one) => one.uuid === known.me.uuid) ?? told[0];
    if (!own) return;
    zones.set(own.zones);
    const { metastore, baseline } = own;
    if (metastore) {
      facts(store, [["Leader", metastore.leader || "not known"], ["Voters", metastore.voters.join(", ") || "not known"],
        ["Revision", count(metastore.revision)], ["Keys", count(metastore.keys)], ["History", bytes(metastore.history_bytes)]]);
    } else note(store, "This cluster has no metastore.");
    if (baseline) {
      const named = (wanted) => baseline.members.filter(wanted).map((one) => one.consistent_id).join(", ") || "none";
      facts(owners, [["Here", named((one) => one.uuid)], ["Away", named((one) => one.away)], ["Outside", baseline.outside.join(", ") || "none"],
        ["Adjusted", baseline.adjust_ms === null ? "by operators" : `${span(baseline.adjust_ms)} after the last join or leave`]]);
    } else note(owners, "Every member owns data as soon as it joins.");
    const sum = (value) => told.reduce((total, one) => total + value(one), 0);
    const most = (value) => Math.max(0, ...told.map(value));
    facts(running, [["Running", count(sum((one) => one.transactions.running))], ["Oldest", span(most((one) => one.transactions.oldest_ms))],
      ["Being ended, without a coordinator", count(most((one) => one.transactions.orphans))]]);
    const kept = most((one) => one.cuts.kept);
    if (kept) facts(cuts, [["Cuts that are read", count(kept)], ["Former values kept for them", count(sum((one) => one.cuts.changed_keys))]]);
    else note(cuts, "No export and no backup is under way.");
  } };
}

// -- partitions

function partitions(known) {
  const whose = make("select", { "aria-label": "Whose replicas", onchange: () => update() });
  const when = make("input", { type: "range", min: 0, max: 1000, value: 1000, "aria-label": "Time of the table", oninput: () => { now = Number(when.value) >= 1000; update(); } });
  const at = make("output", {}, "now");
  const names = make("ul.legend", { "aria-label": "Members" });
  const squares = make("div");
  const over = make("div");
  const facts = make("p.note");
  const element = make("div", {},
    make("div.sheet", {}, make("h2", {}, "Who owns what"), names,
      make("div.tools", {}, make("label", {}, "Show", whose), make("label", {}, "As of", at), when), squares,
      make("p.note", {}, "A square for each partition, in the colour of its owner. With one member chosen: its primaries, paler its backups, and faint what others hold.")),
    make("div.sheet", {}, make("h2", {}, "Over time"), over, facts));
  const squarePicture = new OwnershipNow(squares);
  const timePicture = new OwnershipOverTime(over, { clock: (ms) => clock(ms) });
  let now = true;
  let drawn = "";
  const update = () => {
    if (!known.base.length) { facts.textContent = "Partitions have not been assigned yet."; return; }
    const begin = known.baseMs;
    const end = Math.max(Date.now(), known.changes.at(-1)?.[0] ?? 0, begin + 1000);
    const moment = now ? end : begin + (end - begin) * Number(when.value) / 1000;
    at.textContent = now ? "now" : clock(moment);
    when.setAttribute("aria-valuetext", at.textContent);
    const rows = rowsAt(known.base, known.changes, moment);
    const counts = new Map();
    const present = new Set();
    for (const row of rows) {
      counts.set(row[0], (counts.get(row[0]) ?? 0) + 1);
      for (const place of row) if (place >= 0) present.add(place);
    }
    const told = known.members.filter(({ place }) => present.has(place));
    legend(names, told, counts);
    const options = told.map((one) => one.uuid).join();
    if (whose.dataset.options !== options) {
      const before = whose.value;
      whose.replaceChildren(make("option", { value: "-1" }, "all members"), ...told.map((one) => make("option", { value: String(one.place) }, one.name)));
      whose.value = [...whose.options].some((one) => one.value === before) ? before : "-1";
      whose.dataset.options = options;
    }
    squarePicture.show(rows, known.members, Number(whose.value));
    // The picture over time is drawn anew when there is something new, or half a percent of it has passed.
    const mark = `${known.number} ${known.lines.length} ${Math.floor(end / Math.max(1000, (end - begin) / 200))}`;
    if (mark !== drawn) {
      drawn = mark;
      const marks = known.lines.filter((one) => ["joined", "left", "gone"].includes(one.kind) && one.at_ms > begin)
        .map((one) => ({ at: one.at_ms, text: `${one.target} ${one.kind}`, alarm: one.kind === "gone" }));
      timePicture.show({ base: known.base, changes: known.changes, members: known.members, begin, end, marks });
    }
    timePicture.at(now ? null : moment);
    facts.textContent = `${count(known.changes.length)} changes of the table since ${clock(begin)}, as this member saw them; each line is a partition, and those with the same story lie together.`;
  };
  return { element, update };
}

// -- migrations

function migrations(known) {
  const figures = make("div.cards");
  const bar = make("progress", { max: 1, "aria-label": "The rebalance under way", hidden: true });
  const words = make("p.note");
  const name = (uuid) => named(known, uuid);
  const running = new Rows({
    caption: "Migrations under way", empty: "No migration is under way.", size: 20,
    columns: [
      { title: "Partition", number: true, value: (one) => one.partition },
      { title: "Kind", value: (one) => one.kind },
      { title: "Replica", number: true, value: (one) => one.replica },
      { title: "From", value: (one) => (one.source ? name(one.source) : "nobody") },
      { title: "To", value: (one) => name(one.destination) },
      { title: "For", number: true, value: (one) => one.running_ms, show: (one) => span(one.running_ms) },
    ],
  });
  running.search.hidden = true;
  const ended = new Rows({
    caption: "Migrations that have ended", empty: "No migration has ended since this member started.", filter: "Filter migrations", sort: "Time", down: true,
    columns: [
      { title: "Time", number: true, left: true, value: (one) => one.number, show: (one) => clock(one.at_ms) },
      { title: "Partition", number: true, value: (one) => one.partition },
      { title: "Replica", number: true, value: (one) => one.replica, show: (one) => (one.replica ? `backup ${one.replica}` : "owner") },
      { title: "From", value: (one) => one.source || "nobody" },
      { title: "To", value: (one) => one.target },
      { title: "Took", number: true, value: (one) => one.took_ms ?? 0, show: (one) => (one.took_ms ? span(one.took_ms) : "–") },
      { title: "Result", value: (one) => (one.kind === "failed" ? "failed" : "done"), show: (one) => make("span", { class: one.kind === "failed" ? "warn" : "good" }, one.kind === "failed" ? "failed" : "done") },
    ],
  });
  const element = make("div", {}, figures, bar, words,
    make("div.sheet", {}, make("h2", {}, "Under way"), running.element),
    make("div.sheet", {}, make("h2", {}, "Ended"), ended.element));
  let seen = "";
  return { element, update() {
    const leader = master(known) ?? known.survey?.members.find((one) => one.status)?.status;
    const moved = leader?.migrations;
    if (moved) {
      figures.replaceChildren(card(count(moved.active), "under way"), card(count(moved.queued), "waiting"), card(count(moved.completed), "done"),
        card(count(moved.failed), "failed", moved.failed ? "alarm" : ""));
      const process = moved.process;
      bar.hidden = !process;
      if (process) bar.value = (process.completed + process.failed) / Math.max(1, process.planned);
      words.textContent = process ? `A rebalance is under way: ${process.completed} of ${process.planned} migrations done, for ${span(process.elapsed_ms)}`
        : "No rebalance is under way." + (moved.delayed_ms ? ` Lost copies are restored in ${span(moved.delayed_ms)}.` : "");
    }
    running.set(known.survey?.running ?? []);
    const mark = `${known.lines.at(-1)?.number} ${known.lines.length}`;
    if (mark !== seen) { seen = mark; ended.set(known.lines.filter((one) => one.kind === "migrated" || one.kind === "failed")); }
  } };
}

// -- maps

function maps(known) {
  const table = new Rows({
    caption: "Maps", empty: "No map has an entry.", filter: "Filter maps", sort: "Entries", down: true,
    columns: [
      { title: "Map", value: (one) => one.name },
      { title: "Entries", number: true, value: (one) => one.entries, show: (one) => count(one.entries) },
      { title: "Size", number: true, value: (one) => one.bytes, show: (one) => bytes(one.bytes) },
      { title: "Reads a second", number: true, value: (one) => one.read_rate, show: (one) => (one.read_rate === null ? "–" : count(Math.round(one.read_rate))) },
      { title: "Updates a second", number: true, value: (one) => one.rate, show: (one) => (one.rate === null ? "–" : count(Math.round(one.rate))) },
      { title: "Updates ever", number: true, value: (one) => one.updates, show: (one) => count(one.updates) },
    ],
  });
  const note = make("p.note");
  return { element: make("div.sheet", {}, make("h2", {}, "Maps"), table.element, note), update() {
    const { survey } = known;
    if (!survey) return;
    table.set(survey.maps);
    const silent = survey.members.filter((one) => !one.status).map((one) => one.name);
    note.textContent = "Entries of all members' primaries, in zones of the leaders; sizes of keys and values are estimated from a sample."
      + (silent.length ? ` Without what ${silent.join(", ")} hold: they do not answer.` : "")
      + ` Asked at ${clock(survey.at_ms)}.`;
  } };
}

// -- slow operations

function slow(known) {
  const words = (value) => (value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));
  const table = new Rows({
    caption: "Slow operations", empty: "No operation was slow.", filter: "Filter operations", sort: "Ended", down: true,
    columns: [
      { title: "Ended", number: true, left: true, value: (one) => one.ended_ms ?? Infinity, show: (one) => (one.ended_ms ? clock(one.ended_ms) : "under way") },
      { title: "Member", value: (one) => one.member },
      { title: "Took", number: true, value: (one) => one.took_ms, show: (one) => span(one.took_ms) },
      { title: "What", value: (one) => `${words(one.operations) || ""} ${words(one.kind)}`.trim() },
      { title: "Where", value: (one) => words(one.places) },
      { title: "Waited for", value: (one) => `${words(one.waited_for)} ${words(one.members)}`.trim() },
    ],
  });
  const note = make("p.note");
  return { element: make("div.sheet", {}, make("h2", {}, "Slow operations"), table.element, note), update() {
    if (!known.survey) return;
    const told = known.survey.members.filter((one) => one.status?.slow_operations);
    const rows = told.flatMap((one) => [...one.status.slow_operations.recent, ...one.status.slow_operations.running].map((row) => ({ ...row, member: one.name })));
    const total = told.reduce((sum, one) => sum + one.status.slow_operations.count, 0);
    const limits = [...new Set(told.map((one) => one.status.slow_operations.limit_ms))].join(", ");
    note.textContent = told.length ? `${count(total)} since the members started that took more than ${limits} ms; the last of each member are kept.`
      : "The members keep no list of slow operations. How long their event loops stood still is below.";
    const stalls = known.survey.members.filter((one) => one.status?.stalls?.longest_in_last_minute_ms).map((one) => `${one.name} ${Math.round(one.status.stalls.longest_in_last_minute_ms)} ms`);
    if (stalls.length) note.textContent += ` Longest turn of the event loop in the last minute: ${stalls.join(", ")}.`;
    table.set(rows);
  } };
}

// -- events

function events(known) {
  const level = make("select", { "aria-label": "Which events", onchange: () => render() },
    ...[["all", "all events"], ["notable", "all but migrations"], ["warning", "warnings and errors"]].map(([value, text]) => make("option", { value }, text)));
  const table = new Rows({
    caption: "Events", empty: "Nothing has happened.", filter: "Filter events", sort: "Time", down: true,
    columns: [
      { title: "Time", number: true, left: true, value: (one) => one.number, show: (one) => clock(one.at_ms) },
      { title: "Level", value: (one) => one.level ?? "info", show: (one) => make("span", { class: { warning: "warn", error: "bad" }[one.level] ?? "quiet" }, one.level ?? "info") },
      { title: "Kind", value: (one) => one.kind },
      { title: "What", value: (one) => one.text + (one.took_ms ? `, ${span(one.took_ms)}` : "") },
    ],
  });
  table.extra.append(level);
  const note = make("p.note");
  const wanted = { all: () => true, notable: (one) => one.kind !== "migrated", warning: (one) => Boolean(one.level && one.level !== "info") };
  let seen = "";
  const render = () => table.set(known.lines.filter(wanted[level.value]));
  return { element: make("div.sheet", {}, make("h2", {}, "Events"), table.element, note), update() {
    const mark = `${known.lines.at(-1)?.number} ${known.lines.length}`;
    if (mark !== seen) { seen = mark; render(); }
    note.textContent = `As this member saw them, since it started.${known.missed ? ` ${count(known.missed)} older ones are kept no more.` : ""}`;
  } };
}

// -- one entry

function entry(known) {
  const list = make("datalist", { id: "known-maps" });
  const map = make("input", { name: "map", required: true, list: "known-maps", autocomplete: "off" });
  const key = make("input", { name: "key", autocomplete: "off" });
  const kind = make("select", { name: "kind" }, ...[["string", "text"], ["integer", "number (int, long if large)"], ["long", "number (long)"], ["json", "JSON"], ["stored", "stored form, hexadecimal"]]
    .map(([value, text]) => make("option", { value }, text)));
  const result = make("div", { role: "status" });
  const ask = async (event) => {
    event.preventDefault();
    result.replaceChildren(make("p.quiet", {}, "Asking"));
    try {
      const told = await post("entry", { map: map.value, key: key.value, kind: kind.value }, [REJECTED]);
      const names = (told.replicas ?? []).map((uuid) => named(known, uuid));
      const facts = make("dl.facts", {}, make("dt", {}, "Partition"), make("dd", {}, String(told.partition)),
        make("dt", {}, "Owner"), make("dd", {}, names[0] ?? "nobody"), make("dt", {}, "Backups"), make("dd", {}, names.slice(1).join(", ") || "none"));
      if (told.found) facts.append(make("dt", {}, "Value"), make("dd", {}, `${told.kind}, ${count(told.bytes)} bytes${told.cut ? "; its beginning is shown" : ""}`));
      result.replaceChildren(make("h3", {}, told.reason ? "Refused" : told.found ? "Found" : "There is no such entry"), facts,
        told.reason ? make("p.bad", {}, told.reason) : "", told.found ? make("pre", { tabindex: "0", "aria-label": "Value" }, told.text) : "");
    } catch (error) {
      result.replaceChildren(make("p.bad", {}, error.message));
    }
  };
  const element = make("div.sheet", {}, make("h2", {}, "One entry"),
    make("form.fields", { onsubmit: ask }, make("label", {}, "Map", map, list), make("label", {}, "Key", key), make("label", {}, "The key is", kind),
      make("button.main", { type: "submit" }, "Look it up")), result);
  let filled = 0;
  return { element, update() {
    const names = known.survey?.maps.slice(0, 1000) ?? [];
    if (names.length !== filled) { filled = names.length; list.replaceChildren(...names.map((one) => make("option", { value: one.name }))); }
  } };
}

export const VIEWS = [
  { id: "members", title: "Members", make: members },
  { id: "cluster", title: "Cluster", make: cluster },
  { id: "partitions", title: "Partitions", make: partitions },
  { id: "migrations", title: "Migrations", make: migrations, watch: true },
  { id: "maps", title: "Maps", make: maps },
  { id: "slow", title: "Slow operations", make: slow },
  { id: "events", title: "Events", make: events, watch: true },
  { id: "commands", title: "Commands", make: commands, acts: true },
  { id: "entry", title: "Entry", make: entry },
];
