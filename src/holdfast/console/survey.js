// What all members say: their status, maps and load, asked through the member from which the page came.

import { queryAll } from "./door.js";

let before = null;

/** Everything that views read of the members: `{at_ms, members, maps, running}`. Rates are null at first. */
export async function survey() {
  const [statuses, counts, loads] = await Promise.all(["status", "maps", "load"].map((name) => queryAll(name)));
  const loadOf = new Map(loads.members.map((one) => [one.uuid, one.answer]));
  const own = statuses.members.map((one) => one.answer).filter(Boolean);
  const rows = new Map(own.flatMap((status) => status.members.map((row) => [row.uuid, row])));
  const found = {
    at_ms: statuses.at_ms,
    members: statuses.members.map(({ uuid, name, answer, error }) => ({ uuid, name, ...rows.get(uuid), status: answer, error, load: loadOf.get(uuid) })),
    maps: together(counts.members),
    answered: counts.members.filter((one) => one.answer).map((one) => one.uuid).join(),
    running: (own.find((status) => status.is_master) ?? own.find((status) => status.migrations.running.length))?.migrations.running ?? [],
  };
  const seconds = before ? (found.at_ms - before.at_ms) / 1000 : 0;
  for (const one of found.members) one.rates = ratesOf(before?.members.find((other) => other.uuid === one.uuid)?.load, one.load);
  // The sums of other members are no base for a rate.
  const comparable = seconds > 0 && before.answered === found.answered;
  const earlier = new Map(comparable ? before.maps.map((one) => [one.name, one]) : []);
  for (const one of found.maps) {
    const known = earlier.get(one.name);
    one.rate = known ? Math.max(0, one.updates - known.updates) / seconds : null;
    one.read_rate = known ? Math.max(0, one.reads - known.reads) / seconds : null;
  }
  if (!before || seconds > 0) before = found;
  return found;
}

export function forget() { before = null; }

/** The status of all members, asked again. */
export const statuses = async () => (await queryAll("status")).members.map(({ uuid, name, answer, error }) => ({ uuid, name, status: answer, error }));

function together(members) {
  const maps = new Map();
  for (const { answer } of members) {
    for (const [name, { entries, bytes, updates }] of Object.entries(answer?.maps ?? {})) {
      const one = maps.get(name) ?? { name, entries: 0, bytes: 0, updates: 0, reads: 0 };
      maps.set(name, { ...one, entries: one.entries + entries, bytes: one.bytes + bytes, updates: one.updates + updates });
    }
  }
  for (const { answer } of members) {
    for (const [name, reads] of Object.entries(answer?.reads ?? {})) if (maps.has(name)) maps.get(name).reads += reads;
  }
  return [...maps.values()];
}

/** Operations a second and latencies between two loads of a member; null if there are none, or it was restarted. */
function ratesOf(earlier, now) {
  const ms = earlier && now ? now.uptime_ms - earlier.uptime_ms : 0;
  if (ms <= 0) return null;
  const done = now.operations - earlier.operations;
  return {
    operations: (done * 1000) / ms,
    mean_ms: done ? (now.latency_sum_ns - earlier.latency_sum_ns) / done / 1e6 : null,
    p99_ms: quantile(now.latency_counts.map((count, at) => count - earlier.latency_counts[at]), 0.99),
    processor: (now.processor_ms - earlier.processor_ms) / ms,
  };
}

/** The upper bound of the bucket with this quantile, in ms: each power of two ns has four buckets (`observe.latency_histogram`). */
function quantile(counts, part) {
  const total = counts.reduce((sum, one) => sum + one, 0);
  let left = part * total;
  for (let at = 0; total && at < counts.length; at++) if ((left -= counts[at]) <= 0) return ((4 + (at % 4)) * 2 ** (8 + Math.floor(at / 4))) / 1e6;
  return null;
}
