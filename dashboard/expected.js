// What another strategy or policy is expected to change, from the predictions of `/admin/strategy/recommend`: without the page, so
// that it can be tested by itself.

/** Predictions that differ by less say nothing. */
const LEAST = 0.02;
/** What is compared: how it is called, and where it stands in a prediction. */
const MEASURES = [
  ["TTFT p50", "median_ttft_ms"],
  ["TTFT p99", "p99_ttft_ms"],
  ["between tokens p99", "p99_itl_ms"],
  ["tokens/s", "output_throughput"],
  ["in time/s", "request_goodput"],
];

/** By name: what choosing it instead of what is in force would change, the other of strategy and policy staying as it is. */
export function expected(advised, group) {
  const active = advised.predictions.find((one) => one.active);
  if (!active) return new Map();
  const other = group === "strategy" ? "policy" : "strategy";
  const alike = advised.predictions.filter((one) => !one.active && one[other] === active[other]);
  return new Map(alike.map((one) => [one[group], change(active, one)]));
}

function change(active, one) {
  const told = MEASURES.map(([name, field]) => {
    const [before, after] = [active[field], one[field]];
    // From nothing to something there is no share.
    const share = before > 0 ? after / before - 1 : after > 0 ? Infinity : 0;
    if (Math.abs(share) < LEAST) return null;
    return share === Infinity ? `${name} above 0` : `${name} ${share > 0 ? "+" : "−"}${Math.round(Math.abs(share) * 100)} %`;
  });
  return told.filter(Boolean).join(", ") || "no difference expected";
}

/** How far the prediction for what is in force was from what happened. */
export function confidence({ error, requests }) {
  if (!error) return "";
  const worst = Math.max(...Object.values(error).map(Math.abs));
  return `predicted from ${requests} requests; for what is in force the prediction is off by up to ${Math.round(worst * 100)} %`;
}
