// What the page asks the member from which it came, and nobody else.

export class Refused extends Error {
  constructor(status, why) {
    super(why);
    this.status = status;
  }
}

let credentials = "";

const base = new URL("console/api/", document.baseURI);

/** With which credentials everything is asked from now on; kept in this page alone, until it is closed. */
export function logIn(user, password) {
  const said = new TextEncoder().encode(`${user || "token"}:${password}`);
  credentials = `Basic ${btoa(String.fromCharCode(...said))}`;
}

export function logOut() {
  credentials = "";
}

async function ask(path, options = {}) {
  const headers = { ...(credentials && { authorization: credentials }), ...options.headers };
  // Credentials of the browser's own are left out: it would ask for them in a window that no page can explain.
  return fetch(new URL(path, base), { ...options, headers, credentials: "omit", cache: "no-store" });
}

async function answer(response, accepted = []) {
  const text = await response.text();
  if (response.ok || accepted.includes(response.status)) {
    try { return JSON.parse(text); } catch { /* words */ }
  }
  throw new Refused(response.status, text.trim() || response.statusText);
}

export const get = async (path) => answer(await ask(path));

export const post = async (path, content, accepted = []) => answer(await ask(path, {
  method: "POST", body: JSON.stringify(content), headers: { "content-type": "application/json" },
}), accepted);

/** The answers of all members to a query (`GET /v1/actions` lists them): `{at_ms, members: [{uuid, name, answer, error}]}`. */
export const queryAll = async (name) => get(new URL(`../../v1/queries/${name}?member=all`, base));

export const REJECTED = 409;
const UNKNOWN = 504;

/** All actions and queries, with the schemas of their fields. */
export const actions = async () => (await get(new URL("../../v1/actions", base))).actions;

/** Carry out an operator action (`GET /v1/actions` lists them), with `member` and `timeout_ms` as options. Answers
 * `{result, message}`. Without a response the result is unknown: the member may have received the request.
 */
export async function act(name, fields, options = {}) {
  const path = new URL(`../../v1/actions/${name}?${new URLSearchParams(options)}`, base);
  try {
    return await post(path, fields, [REJECTED, UNKNOWN]);
  } catch (error) {
    const certain = error instanceof Refused && error.status < 500;
    return { result: certain ? "rejected" : "unknown", message: error.message, answered: error instanceof Refused };
  }
}

/** Hear what happens, for ever: `heard(name, data)`, and `live(yes)` when that begins and ends. */
export async function listen(heard, live, state) {
  let last = 0;
  for (let pause = 500; !state.over; pause = Math.min(pause * 2, 10000)) {
    try {
      state.stop = new AbortController();
      const response = await ask(`events?since=${last}`, { signal: state.stop.signal });
      if (!response.ok) throw new Refused(response.status, await response.text());
      live(true);
      pause = 500;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const { value, done } = await reader.read();
        if (done) break;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) {
          const fields = Object.fromEntries(part.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
          if (fields.id) last = Number(fields.id);
          if (fields.event) heard(fields.event, JSON.parse(fields.data));
        }
      }
    } catch (error) {
      if (state.over) return;
      if (error instanceof Refused && [401, 403].includes(error.status)) return void live(false, error);
    }
    live(false);
    await new Promise((done) => setTimeout(done, pause));
  }
}
