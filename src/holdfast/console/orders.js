// What an operator orders: asked for confirmation, given, and followed until it is carried out.

import { confirm, notice } from "./dialogs.js";
import { act, post } from "./door.js";
import { statuses } from "./survey.js";

const ORDER_MS = 600000;
const LOOK_MS = 700;

const held = (status) => (status?.partitions ? status.partitions.primaries + status.partitions.backups : null);

const OUTCOMES = {
  accepted: "accepted, not finished; the cluster continues",
  rejected: "rejected",
  unknown: "unknown whether it was done; look before you repeat it",
};

/** Show what became of an action. `done`: the text for an action that is done. */
export function report(say, found, done, subject = "") {
  if (found.result === "done") return void say(done(found), "good", 1);
  const outcome = OUTCOMES[found.result];
  const words = subject ? outcome : outcome[0].toUpperCase() + outcome.slice(1);
  say(`${subject}${words}: ${found.message}`, "bad");
}

/** Let a member give its partitions away and leave. */
export async function drain(member, known) {
  const { name, uuid } = member;
  const self = uuid === known.me.uuid;
  const copies = held(member.status);
  const yes = await confirm({
    title: `Drain ${name}`, button: `Drain ${name}`, typed: name, danger: true,
    words: [
      `${name} gives its ${copies ?? ""} partition replicas to the other members, leaves the cluster, and its process ends.`,
      "Nothing is lost, and clients go on; the others need room for what it holds.",
      ...(self ? ["This page came from this very member: it ends with it. Open the page of another one to see the rest."] : []),
    ],
  });
  if (!yes) return;
  const say = notice(`${name} is being drained`);
  let over = false;
  const follow = async () => {
    while (!over) {
      await new Promise((done) => setTimeout(done, LOOK_MS));
      try {
        const found = (await statuses()).find((one) => one.uuid === uuid);
        const left = found ? held(found.status) : 0;
        if (!over && left !== null) say(`${name} is being drained: ${left} partition replicas are still there`, "", copies ? 1 - Math.min(1, left / copies) : null);
      } catch { /* it may be this very member that has gone */ }
    }
  };
  follow();
  const found = await act("drain", {}, { member: uuid, timeout_ms: ORDER_MS });
  over = true;
  if (self && found.answered === false) say(`${name} has gone, and this page with it: open the page of another member`, "good", 1);
  else report(say, found, ({ message }) => `${name} has left${message && message !== "left" ? `: ${message}` : ""}`, `${name}: `);
  dispatchEvent(new Event("holdfast-ask"));
}

const STATES = {
  active: "Everything goes on: reads, writes, migrations, members that join.",
  "no-migration": "Reads and writes go on. Nothing is moved, and lost copies are restored nowhere else.",
  frozen: "Reads and writes go on. The table stays as it is, and no member may join: for planned restarts.",
  passive: "Reads go on. Every write is refused, nothing is moved, and no member may join.",
};
export const stateNames = Object.keys(STATES);

/** Change the state of the cluster. */
export async function changeState(state) {
  const yes = await confirm({
    title: `Make the cluster ${state}`, button: `Make it ${state}`, danger: state === "passive",
    words: [STATES[state] ?? "", "It is so for the whole cluster, until somebody changes it again."],
  });
  if (!yes) return;
  const say = notice(`The cluster is being made ${state}`);
  report(say, await act("state", { state }, { timeout_ms: 30000 }), () => `The cluster is ${state}`);
  dispatchEvent(new Event("holdfast-ask"));
}

/** Could a crash cost something now? Asked of every member anew. */
export async function askSafe() {
  const say = notice("Every member is asked");
  try {
    const members = await statuses();
    const silent = members.filter((one) => !one.status).map((one) => one.name);
    const stamps = new Set(members.filter((one) => one.status).map((one) => one.status.table.stamp));
    const why = members.map((one) => one.status?.unsafe_reason && `${one.name}: ${one.status.unsafe_reason}`).find(Boolean);
    if (silent.length) say(`Nobody knows: ${silent.join(", ")} do not answer`, "bad");
    else if (why) say(`Not safe: ${why}`, "bad");
    else if (stamps.size > 1) say("Not safe: members have different partition tables", "bad");
    else say(`Safe: as all ${members.length} members see it, a crash of one of them would cost nothing`, "good");
  } catch (error) {
    say(`This was not found out: ${error.message}`, "bad");
  }
}

/** Compare all copies of everything. */
export async function verifyCopies() {
  const yes = await confirm({
    title: "Verify all copies", button: "Verify",
    words: ["Every backup is compared with its primary, and the tables of all members with each other. It changes nothing, and costs processor time: all entries are read."],
  });
  if (!yes) return;
  const say = notice("Copies are being compared");
  try {
    const told = await post("verify", {});
    if (told.error) say(`Not compared: ${told.error}`, "bad");
    else if (told.conflicts) say(`${told.conflicts} differ: ${told.lines.slice(0, 5).join("; ")}`, "bad");
    else if (told.undecided || told.silent.length) say(`${told.undecided} could not be compared${told.silent.length ? `; silent: ${told.silent.join(", ")}` : ""}`, "bad");
    else say(`All copies are the same: ${told.compared.toLocaleString("en")} compared in ${told.seconds.toFixed(1)} s`, "good");
  } catch (error) {
    say(`Not compared: ${error.message}`, "bad");
  }
}
