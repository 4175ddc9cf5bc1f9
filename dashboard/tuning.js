// Strategy, policy and their parameters, and the word to pause: everything here changes the engine from its next step on.

import { $, h, put, said } from "./dom.js";
import { confidence, expected } from "./expected.js";
import { json } from "./server.js";

/** Predictions cost the server a simulation of each choice, so they are asked for when somebody begins to choose, and kept so long. */
const KEPT_MS = 60_000;
const WINDOW = "10m";

const GROUPS = [
  ["strategy", "Strategy", "When a gathered group of requests flows to the scheduler"],
  ["policy", "Policy", "Who computes first in a step"],
  ["balancer", "Balancer", "Which worker takes a request"],
  ["limits", "Limits", "Seats, tokens in a step, queue"],
];

export function tuning() {
  const say = (text, mood = "") => {
    $("tuning-said").dataset.mood = mood;
    put($("tuning-said"), text);
  };
  const groups = GROUPS.map(([name, title, about]) => group(name, title, about, say, changed));
  const pause = $("pause");
  let paused = false;

  async function changed() {
    await Promise.all([...groups.map((one) => one.load()), audit()]);
  }
  pause.addEventListener("click", async () => {
    try {
      await json(`admin/${paused ? "resume" : "pause"}`, { method: "POST" });
      say(paused ? "Steps start again." : "Paused: no step starts until you resume.");
      audit();
    } catch (error) {
      say(error.message, "bad");
    }
  });
  $("audit").addEventListener("toggle", audit);
  addEventListener("tuningchanged", changed);
  return {
    greet: changed,
    show({ engine, metrics }) {
      paused = Boolean(engine?.paused);
      put(pause, paused ? "Resume" : "Pause");
      pause.setAttribute("aria-pressed", String(paused));
      // One worker takes everything, whoever chooses.
      $("tuning-balancer").hidden = (engine?.workers ?? []).length < 2;
      for (const one of groups) one.inForce(metrics?.[one.name] ?? engine?.[one.name]);
    },
  };
}

/** Tells the other panels that something else is in force. */
export const announce = () => dispatchEvent(new Event("tuningchanged"));

function group(name, title, about, say, changed) {
  const select = h("select", { id: `tune-${name}` });
  const button = h("button", { type: "submit", disabled: true }, "Switch");
  const current = h("p", { class: "note" });
  const effects = h("ul", { class: "expected note", "aria-label": `What another ${name} is expected to change`, hidden: true });
  const fields = h("div", { class: "fields" });
  const save = h("button", { type: "submit", disabled: true }, "Save");
  const chooser = h("form", { class: "choose" }, h("label", { for: `tune-${name}` }, title), select, button, current, effects);
  const more = h("details", { class: "more" }, h("summary", {}, name === "limits" ? "Limits" : `Parameters of the ${name}`), h("form", {}, fields, h("div", { class: "actions" }, save)));
  chooser.hidden = name === "limits";
  $("tuning").append(h("div", { class: "group", id: `tuning-${name}`, title: about }, chooser, more));
  let active;

  const refresh = () => {
    const other = Boolean(select.value) && select.value !== active;
    button.disabled = !other;
    put(current, other && active ? `${said(active)} is in force` : "");
  };
  const inputs = () => [...fields.querySelectorAll("input, select")];
  const dirty = () => inputs().filter((input) => (input.type === "checkbox" ? input.checked !== input.was : input.value !== input.was));
  const foretell = async () => {
    if (name !== "strategy" && name !== "policy") return;
    const told = await predictions();
    const changes = expected(told, name);
    const lines = [...changes].map(([choice, change]) => h("li", {}, h("b", {}, said(choice)), ` ${change}`));
    effects.replaceChildren(...(lines.length ? [...lines, h("li", {}, confidence(told))] : [h("li", {}, `Nothing can be predicted: ${told.why}`)]));
    effects.hidden = false;
  };
  select.addEventListener("focus", foretell);
  select.addEventListener("change", refresh);
  fields.addEventListener("input", () => (save.disabled = !dirty().length));
  chooser.addEventListener("submit", (event) => {
    event.preventDefault();
    change({ name: select.value }, `The ${name} is ${said(select.value)} now.`);
  });
  more.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const value = (input) => {
      if (input.type === "checkbox") return input.checked;
      return input.tagName === "SELECT" ? input.value : Number(input.value);
    };
    const parameters = Object.fromEntries(dirty().map((input) => [input.name, value(input)]));
    change({ parameters }, "Saved.");
  });

  async function change(body, done) {
    try {
      const answer = await json(`admin/${name}`, { method: "PUT", body });
      asked = undefined;
      effects.hidden = true;
      for (const input of inputs()) input.was = undefined;
      await changed();
      say(answer.audited === false ? `${done} The store did not take it down.` : done, "good");
    } catch (error) {
      say(error.message, "bad");
    }
  }

  // Kind, ends, names and help come from the server's table of settings.
  function field(key, value, about = {}) {
    const id = `tune-${name}-${key}`;
    const number = { type: "number", step: about.kind === "whole" ? "1" : "any", min: about.min, max: about.max };
    const choice = about.choices?.map((one) => h("option", { value: one }, said(one)));
    const input = choice
      ? h("select", { id, name: key }, ...choice)
      : h("input", { id, name: key, ...(typeof value === "boolean" ? { type: "checkbox" } : number) });
    return h("div", { class: "field", title: about.help }, h("label", { for: id }, said(key)), input);
  }

  return {
    name,
    async load() {
      let known;
      try {
        known = await json(`admin/${name}`);
      } catch {
        return;
      }
      const available = known.available ?? [];
      if (select.options.length !== available.length) {
        select.replaceChildren(...available.map((one) => h("option", { value: one }, said(one))));
      }
      const entries = Object.entries(known.parameters ?? {});
      if (fields.children.length !== entries.length) fields.replaceChildren(...entries.map(([key, value]) => field(key, value, known.settings?.[key])));
      const untouched = new Set(dirty().map((input) => input.name));
      entries.forEach(([key, value], at) => {
        const input = fields.children[at].querySelector("input, select");
        // What somebody is writing stays.
        if (untouched.has(key) && input.was !== undefined) return;
        if (input.type === "checkbox") input.checked = input.was = value;
        else input.value = input.was = String(value);
      });
      save.disabled = !dirty().length;
      more.hidden = !entries.length;
      if (!known.name) return;
      if (known.name === active) select.value = active;
      this.inForce(known.name);
      refresh();
    },
    inForce(chosen) {
      if (!chosen || chosen === active) return;
      // The list follows what is in force, unless somebody is choosing.
      if (!active || select.value === active || document.activeElement !== select) select.value = chosen;
      active = chosen;
      refresh();
    },
  };
}

let asked;

/** What every strategy and policy would have done; one question for both lists. */
function predictions() {
  if (!asked || performance.now() - asked.at > KEPT_MS) {
    const answer = json(`admin/strategy/recommend?window=${WINDOW}`).catch((error) => ({ predictions: [], why: error.message }));
    asked = { at: performance.now(), answer };
  }
  return asked.answer;
}

// What is in force now is what choices are compared with.
addEventListener("tuningchanged", () => (asked = undefined));

async function audit() {
  if (!$("audit").open) return;
  try {
    const { data } = await json("admin/audit?limit=12");
    const line = (one) => h("li", {}, h("time", { datetime: new Date(one.at * 1e3).toISOString() }, new Date(one.at * 1e3).toLocaleTimeString()),
      h("span", {}, `${said(one.what)}: ${said(one.from)} → ${said(one.to)}`), h("span", { class: "note" }, one.who));
    $("audit-list").replaceChildren(...(data.length ? data.map(line) : [h("li", { class: "note" }, "Nothing was changed.")]));
  } catch (error) {
    $("audit-list").replaceChildren(h("li", { class: "note" }, error.message));
  }
}
