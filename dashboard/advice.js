// What every strategy and policy would have done with the arrivals that were recorded, and strategies on trial.

import { $, duration, h, put, rate, said } from "./dom.js";
import { json } from "./server.js";
import { announce } from "./tuning.js";

const TRIAL = "2m";
const TRIAL_LOOK_MS = 2_000;

export function advice() {
  const button = $("advice-form").querySelector("button");
  $("advice-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    put(button, "Comparing");
    try {
      tell(await json(`admin/strategy/recommend?window=${$("advice-window").value}`));
    } catch (error) {
      verdict(error.message, "refused");
    }
    button.disabled = false;
    put(button, "Compare");
  });
  return { greet: look, show() {} };
}

function verdict(text, mood) {
  $("advice-verdict").hidden = false;
  $("advice-verdict").dataset.verdict = mood;
  put($("advice-verdict"), text);
}

const WORDS = { change: "Change", keep: "Keep what is in force", refused: "No advice" };

function tell(advised) {
  verdict(`${WORDS[advised.verdict] ?? said(advised.verdict)}: ${advised.why}`, advised.verdict);
  $("advice-scroll").hidden = !advised.predictions.length;
  $("advice-empty").hidden = advised.predictions.length > 0;
  if (!advised.predictions.length) put($("advice-empty"), "There is nothing to compare yet: too few requests came in that time.");
  const body = $("advice-table").tBodies[0];
  body.replaceChildren(...advised.predictions.map((one) => row(one, advised.recommended)));
}

function row(one, recommended) {
  const chosen = recommended?.strategy === one.strategy && recommended?.policy === one.policy;
  const cell = (text) => h("td", { class: "num" }, text);
  const name = h("th", { scope: "row" }, said(one.strategy), one.active ? h("span", { class: "tag" }, "in force") : null, chosen ? h("span", { class: "tag strong" }, "recommended") : null);
  const actions = one.active ? h("td") : h("td", { class: "doing" },
    h("button", { type: "button", class: chosen ? "primary" : "", "aria-label": `Apply ${said(one.strategy)} with ${said(one.policy)}`, click: () => apply(one) }, "Apply"),
    chosen ? h("button", { type: "button", click: () => attempt(one.strategy) }, `Try for ${TRIAL.replace("m", " min")}`) : null);
  return h("tr", { class: one.active ? "active" : chosen ? "chosen" : "" }, name, h("td", {}, said(one.policy)),
    cell(duration(one.median_ttft_ms)), cell(duration(one.p99_ttft_ms)), cell(duration(one.p99_itl_ms)), cell(rate(one.output_throughput)), cell(rate(one.request_goodput)), actions);
}

async function apply({ strategy, policy }) {
  try {
    await json("admin/strategy", { method: "PUT", body: { name: strategy } });
    await json("admin/policy", { method: "PUT", body: { name: policy } });
    verdict(`${said(strategy)} with ${said(policy)} is in force now.`, "keep");
    for (const line of $("advice-table").tBodies[0].rows) {
      line.classList.remove("active", "chosen");
    }
  } catch (error) {
    verdict(error.message, "refused");
  }
  announce();
}

async function attempt(strategy) {
  try {
    await json(`admin/strategy/${encodeURIComponent(strategy)}?canary=${TRIAL}`, { method: "POST" });
    look();
  } catch (error) {
    verdict(error.message, "refused");
  }
}

let timer;

/** The trial under way, or the last one. */
async function look() {
  clearTimeout(timer);
  let trial = null;
  try {
    trial = await json("admin/strategy/canary");
  } catch {
    // It is asked again with the next greeting.
  }
  const shown = $("trial");
  shown.hidden = !trial;
  if (!trial) return;
  const kept = (one) => `${one.kept} of ${one.requests}`;
  shown.dataset.running = trial.running;
  shown.replaceChildren(
    h("b", {}, trial.running ? `${said(trial.strategy)} is on trial` : `${said(trial.strategy)} was on trial`),
    h("span", {}, ` for ${duration(trial.seconds * 1e3)} against ${said(trial.instead_of)}. In time: ${kept(trial.on_trial)} with it, ${kept(trial.in_force)} without.`),
    trial.why ? h("span", {}, ` ${trial.kept ? "Kept" : "Not kept"}: ${trial.why}`) : "");
  if (trial.running) timer = setTimeout(look, TRIAL_LOOK_MS);
  else announce();
}
