// The way to the server: requests with a key where one is asked for, and the stream that never gives up.

const BASE = new URL("..", import.meta.url);
const SLOTS = { admin: "forebay.admin-key", inference: "forebay.inference-key" };
/** A stream that is silent for so long is dead: frames and pings come far more often. */
const SILENCE_MS = 8_000;
const RETRY_MS = [500, 1_000, 2_000, 3_000, 5_000];

/** What the server said no to, in its own words. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const session = {
  get: (role) => sessionStorage.getItem(SLOTS[role]),
  set: (role, key) => (key ? sessionStorage.setItem(SLOTS[role], key) : sessionStorage.removeItem(SLOTS[role])),
};

let askForKey = async () => null;
/** `(role, wasWrong) => Promise<key or null>`: who asks the person. */
export const onKeyNeeded = (ask) => (askForKey = ask);
export const hasKey = () => Object.keys(SLOTS).some((role) => session.get(role));
export const forgetKeys = () => Object.keys(SLOTS).forEach((role) => session.set(role, null));

/** One person, one question at a time: whoever needs the same key waits for the same answer. */
const questions = new Map();
const declined = new Set();
let line = Promise.resolve();
function keyFor(role, wasWrong) {
  if (!questions.has(role)) {
    line = line.then(() => askForKey(role, wasWrong));
    questions.set(role, line.finally(() => questions.delete(role)));
  }
  return questions.get(role);
}

/** Whether somebody was asked for a key and gave none: nobody asks again until [`askAgain`]. */
export const hasDeclined = () => declined.size > 0;
export const askAgain = () => declined.clear();

/**
 * A response that went well. With 401 the person is asked for a key, until there is one that fits or none; not where it is
 * `quiet`.
 */
export async function ask(path, { role = "admin", quiet = false, body, ...options } = {}) {
  for (;;) {
    const key = session.get(role) ?? (role === "inference" ? session.get("admin") : null);
    const headers = { ...options.headers, ...(key && { authorization: `Bearer ${key}` }) };
    if (body !== undefined) headers["content-type"] = "application/json";
    if (role === "admin") headers["x-admin-actor"] = "dashboard";
    const response = await fetch(new URL(path, BASE), {
      ...options,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (response.ok) return response;
    const refused = new Refused(response.status, await message(response));
    const needsOther = response.status === 401 || (response.status === 403 && role === "inference" && key);
    if (!needsOther || quiet || declined.has(role)) throw refused;
    // Another question may have been answered meanwhile.
    if ((session.get(role) ?? key) === key) {
      const given = await keyFor(role, Boolean(key));
      if (!given) {
        declined.add(role);
        throw refused;
      }
      session.set(role, given);
    }
  }
}

export const json = async (path, options) => (await ask(path, options)).json();

async function message(response) {
  try {
    const { error } = await response.json();
    return error.message;
  } catch {
    return `the server answered ${response.status}`;
  }
}

/** The payloads of a stream of events, as they come. */
export async function* events(response, alive = () => {}) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    const parts = (rest + value).split(/\r?\n\r?\n/);
    rest = parts.pop();
    for (const part of parts) {
      const lines = part.split(/\r?\n/).filter((line) => line.startsWith("data:"));
      if (lines.length) yield lines.map((line) => line.slice(5).trimStart()).join("\n");
    }
  }
}

/**
 * Follows `/admin/live` for as long as the page is seen. `onFrame(frame)` for each one; `onState({ state, message, retryIn })`
 * with `live`, `lost` or `refused` when that changes, and every second while it waits.
 */
export function follow(onFrame, onState) {
  let attempt = 0;
  let stop = () => {};

  async function once() {
    const control = new AbortController();
    let watchdog;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => control.abort(), SILENCE_MS);
    };
    stop = () => control.abort();
    try {
      const response = await ask("admin/live", { signal: control.signal, cache: "no-store" });
      alive();
      for await (const payload of events(response, alive)) {
        attempt = 0;
        onState({ state: "live" });
        onFrame(JSON.parse(payload));
      }
      return { state: "lost", message: "The server ended the stream." };
    } catch (error) {
      if (error instanceof Refused && error.status < 500) return { state: "refused", message: error.message };
      if (error instanceof Refused) return { state: "lost", message: error.message };
      return { state: "lost", message: "The server does not answer." };
    } finally {
      clearTimeout(watchdog);
    }
  }

  const seen = () => new Promise((done) => {
    if (!document.hidden) return done();
    document.addEventListener("visibilitychange", done, { once: true });
  });

  (async () => {
    for (;;) {
      await seen();
      const why = await once();
      if (document.hidden) continue;
      const wait = RETRY_MS[Math.min(attempt++, RETRY_MS.length - 1)];
      for (let left = wait; left > 0; left -= 500) {
        onState({ ...why, retryIn: Math.ceil(left / 1_000) });
        await new Promise((done) => {
          stop = done;
          setTimeout(done, Math.min(left, 500));
        });
      }
    }
  })();
  // Nobody watches: the server is not asked.
  document.addEventListener("visibilitychange", () => document.hidden && stop());
  return { retry: () => stop() };
}
