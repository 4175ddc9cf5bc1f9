// Priority classes apart: who waits, how soon the first token came, how well that was predicted, and how many were served as promised.

import { $, count, duration, h, keyed, percent, put } from "./dom.js";

/** Times are those of the requests that this page saw so lately. */
const KEPT_MS = 300_000;
/** The oldest are forgotten beyond this many. */
const KEPT = 4_000;

export function classes() {
  const body = $("classes-table").tBodies[0];
  /** By sequence, in the order in which their first tokens were seen. */
  const seen = new Map();
  return {
    show({ at, metrics, requests }) {
      for (const { sequence, priority, ttft_us: ttft, predicted_ttft_us: predicted } of requests ?? []) {
        if (typeof ttft === "number" && !seen.has(sequence)) seen.set(sequence, { at, priority, ttft, predicted });
      }
      for (const [sequence, one] of seen) {
        if (seen.size <= KEPT && at - one.at < KEPT_MS) break;
        seen.delete(sequence);
      }
      const times = grouped(seen.values());
      const rows = Object.entries(metrics?.requests ?? {}).map(([name, now]) => ({ name, now, times: times.get(name) ?? [] }));
      keyed(body, rows, (row) => row.name, make, update);
      put($("classes-sum"), seen.size ? `times of ${count(seen.size)} requests of the last five minutes` : "");
    },
  };
}

function grouped(all) {
  const groups = new Map();
  for (const one of all) {
    if (!groups.has(one.priority)) groups.set(one.priority, []);
    groups.get(one.priority).push(one);
  }
  return groups;
}

function make({ name }) {
  const cells = Object.fromEntries(["queued", "running", "p50", "p99", "predicted", "off", "kept"].map((cell) => [cell, h("td", { class: "num" })]));
  const row = h("tr", {}, h("th", { scope: "row" }, name), ...Object.values(cells));
  row.cells_ = cells;
  return row;
}

function update(row, { now, times }) {
  const { queued, running, p50, p99, predicted, off, kept } = row.cells_;
  const told = times.filter((one) => typeof one.predicted === "number");
  put(queued, count(now.queued));
  put(running, count(now.running));
  put(p50, ms(percentile(times.map((one) => one.ttft), 0.5)));
  put(p99, ms(percentile(times.map((one) => one.ttft), 0.99)));
  put(predicted, ms(percentile(told.map((one) => one.predicted), 0.5)));
  put(off, percent(percentile(told.map((one) => Math.abs(one.predicted - one.ttft) / Math.max(one.ttft, 1)), 0.5)));
  const ended = (now.kept ?? 0) + (now.broken ?? 0);
  put(kept, percent(ended ? now.kept / ended : undefined));
  kept.title = ended ? `${count(now.kept)} of the ${count(ended)} that ended since the start were served as promised` : "";
  off.title = told.length ? `the median of ${told.length} predictions` : "";
}

const ms = (micros) => duration(micros === undefined ? undefined : micros / 1e3);

/** The nearest rank; `undefined` of none. */
function percentile(values, share) {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.min(Math.ceil(sorted.length * share), sorted.length) - 1];
}
