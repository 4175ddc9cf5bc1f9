// The requests that are here and those that ended lately, each with how it was scheduled.

import { $, count, duration, h, keyed, NONE, put, s, said } from "./dom.js";
import { json } from "./server.js";

const WIDTH = 1_000;
/** How often the trace of an open request that is still live is read. */
const TRACE_EVERY_MS = 1_000;

export function requests() {
  const list = $("rows");
  let all = [];
  const which = () => document.querySelector("#requests-filter input:checked").value;
  const render = () => {
    const wanted = which();
    const shown = all.filter((one) => wanted === "all" || (one.state === "ended") === (wanted === "ended"));
    keyed(list, shown, (one) => one.sequence, make, update);
    const live = all.filter((one) => one.state !== "ended").length;
    $("rows-empty").hidden = shown.length > 0;
    put($("requests-sum"), all.length ? `${count(live)} live, the last ${count(all.length - live)} that ended` : "");
  };
  $("requests-filter").addEventListener("change", render);
  return {
    show(frame) {
      all = frame.requests ?? [];
      render();
    },
  };
}

function make(request) {
  const part = (name) => h("span", { class: name });
  const parts = { id: part("id"), priority: part("priority"), state: part("state"), prompt: part("num prompt"), output: part("num output"), time: part("num lasted") };
  const line = s("svg", { class: "timeline", viewBox: `0 0 ${WIDTH} 10`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const more = `more-${request.sequence}`;
  const head = h("button", { type: "button", class: "row", "aria-expanded": "false", "aria-controls": more },
    parts.id, parts.priority, parts.state, parts.prompt, parts.output, line, parts.time);
  const body = h("div", { id: more, class: "opened", hidden: true });
  const item = h("li", {}, head, body);
  item.shown = { ...parts, line, head, body, read: 0 };
  head.addEventListener("click", () => {
    const open = head.getAttribute("aria-expanded") !== "true";
    head.setAttribute("aria-expanded", String(open));
    body.hidden = !open;
    item.shown.read = 0;
    if (open) detail(item);
  });
  return item;
}

function update(item, request) {
  const shown = item.shown;
  const changed = shown.request?.state !== request.state;
  shown.request = request;
  put(shown.id, request.id || request.sequence);
  shown.id.title = `${request.id} ${request.sequence}`;
  put(shown.priority, request.priority);
  const words = request.state === "ended" ? (request.ended ?? "ended") : request.state === "waiting" || request.state === "queued" ? `${request.state}${request.waits_for ? `: ${said(request.waits_for)}` : ""}` : request.state;
  put(shown.state, words);
  shown.head.dataset.state = request.state === "ended" ? (request.ended === "failed" || request.ended === "abort" ? "failed" : "ended") : request.state;
  put(shown.prompt, count(request.prompt_tokens));
  shown.prompt.title = request.cached_tokens ? `${request.cached_tokens} of them were in the cache` : "";
  put(shown.output, request.max_tokens ? `${count(request.generated_tokens)} / ${count(request.max_tokens)}` : count(request.generated_tokens));
  put(shown.time, duration(request.lasted_us / 1e3));
  shown.time.title = foretold(request);
  timeline(shown.line, request);
  if (!shown.body.hidden && (changed || (request.state !== "ended" && performance.now() - shown.read > TRACE_EVERY_MS))) detail(item);
}

/** When the first token was expected, and when it came. */
function foretold({ predicted_ttft_us: predicted, ttft_us: ttft }) {
  const came = typeof ttft === "number" ? `first token after ${duration(ttft / 1e3)}` : "";
  const expected = typeof predicted === "number" ? `predicted ${duration(predicted / 1e3)}` : "";
  return [came, expected].filter(Boolean).join(", ");
}

/** A life from its beginning to its end, or to now. */
function timeline(svg, request) {
  const whole = request.lasted_us || 1;
  const signature = JSON.stringify(request.phases);
  if (svg.signature === signature) return;
  svg.signature = signature;
  svg.replaceChildren(...request.phases.map(([doing, from, until, cause]) => {
    const width = Math.max(((until - from) / whole) * WIDTH, 3);
    const x = Math.min((from / whole) * WIDTH, WIDTH - width);
    return s("rect", { class: `phase ${doing}`, x, width, height: 10 }, s("title", {}, phrase(doing, from, until, cause)));
  }));
}

function phrase(doing, from, until, cause) {
  const why = { queue: " for ", wait: " for ", preempted: " by " }[doing];
  return `${doing}${why && cause ? why + said(cause) : ""}, ${duration((until - from) / 1e3)} from ${duration(from / 1e3)} on`;
}

async function detail(item) {
  const { request, body } = item.shown;
  item.shown.read = performance.now();
  let trace;
  try {
    const { sequences } = await json(`admin/requests/${encodeURIComponent(request.sequence)}/trace`);
    trace = sequences[0];
  } catch (error) {
    trace = { events: [], error: error.message };
  }
  // A button that has the focus stays where it is.
  const held = body.contains(document.activeElement) && document.activeElement.tagName === "BUTTON";
  body.replaceChildren(phasesOf(item.shown.request), overtaken(trace), decisions(trace), ending(item.shown.request) ?? "");
  if (held) body.querySelector("button")?.focus();
}

function phasesOf(request) {
  const svg = s("svg", { class: "timeline large", viewBox: `0 0 ${WIDTH} 10`, preserveAspectRatio: "none", role: "img", "aria-label": "Timeline" });
  timeline(svg, request);
  const spans = request.phases.map(([doing, from, until, cause]) => h("li", {},
    h("i", { class: `key ${doing}` }), `${doing}${cause ? ` (${said(cause)})` : ""} `, h("b", {}, duration((until - from) / 1e3))));
  return h("div", { class: "phases" }, svg,
    h("div", { class: "axis" }, h("span", {}, "0"), h("span", {}, duration(request.lasted_us / 1e3))),
    h("ul", { class: "legend" }, ...spans));
}

/** Who went before it although they came later, and why; empty where nobody did. */
function overtaken({ events }) {
  const released = events.find((event) => event.what === "released") ?? {};
  const { waited_lower_priority: urgent = 0, waited_fair_share: fair = 0, overtaken_by: by } = released;
  const reasons = [urgent ? `${count(urgent)} more urgent` : "", fair ? `${count(fair)} for the fair share or the length of a group` : ""].filter(Boolean);
  const queue = reasons.length ? `Overtaken in the queue by ${count(urgent + fair)} that came later (${by}): ${reasons.join(", ")}.` : "";
  const takers = [...new Set(events.filter((event) => event.what === "preempted").map((event) => event.by))];
  const blocks = takers.length ? `Gave way to ${takers.join(", ")}.` : "";
  const text = [queue, blocks].filter(Boolean).join(" ");
  return text ? h("p", { class: "note overtaken" }, text) : "";
}

function decisions(trace) {
  if (trace.error) return h("p", { class: "note" }, trace.error);
  const facts = ({ at_us: _, until_us: __, what: ___, ...rest }) => Object.entries(rest)
    .map(([name, value]) => `${said(name.replace(/_us$/, ""))} ${name.endsWith("_us") ? duration(value / 1e3) : said(value)}`).join(", ");
  const row = (event) => h("tr", {}, h("td", { class: "num" }, duration(event.at_us / 1e3)), h("th", { scope: "row" }, said(event.what)), h("td", {}, facts(event) || NONE));
  return h("div", { class: "scroll" }, h("table", { class: "table decisions" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "num" }, "At"), h("th", { scope: "col" }, "Decision"), h("th", { scope: "col" }, "Why"))),
    h("tbody", {}, ...trace.events.map(row))));
}

function ending(request) {
  if (request.state === "ended") return null;
  const end = async (event) => {
    event.target.disabled = true;
    try {
      await json(`admin/requests/${encodeURIComponent(request.sequence)}`, { method: "DELETE" });
    } catch (error) {
      event.target.replaceWith(h("p", { class: "note" }, error.message));
    }
  };
  return h("div", { class: "actions" }, h("button", { type: "button", click: end }, "End this request"));
}
