// The numbers that are looked at first, each with its last minute as a line.

import { count, h, NONE, percent, put, rate, s, time } from "./dom.js";

const POINTS = 150;
/** Samples of the history for each frame. */
const SAMPLES = 4;
const WIDTH = 120;
const HEIGHT = 26;

/** Name, whether it is a time, and from a frame: the value for the line, what is written, its unit, and the small print. */
const TILES = [
  ["Queue depth", ({ m, e }) => ({ value: m.queue_depth, text: count(m.queue_depth), note: `${count(e.requests_running)} running, ${count(e.requests_waiting)} wait for blocks` })],
  ["Tokens per second", ({ m }) => ({ value: m.tokens_per_second?.generation, text: rate(m.tokens_per_second?.generation), note: `${rate(m.tokens_per_second?.prompt)} prompt tokens/s` })],
  ["Time to first token", ({ m }) => timed(m.ttft)],
  ["Between tokens", ({ m }) => timed(m.inter_token)],
  ["Batch size", ({ m, e }) => {
    const size = e.last_batches?.[0]?.size ?? m.avg_batch_size;
    return { value: size, text: count(size), note: `${rate(m.avg_batch_size)} on average of ${count(m.batches_formed)}` };
  }],
  ["KV cache in use", ({ m }) => {
    const { blocks, free, usage } = m.kv ?? {};
    const share = usage ?? (blocks ? (blocks - free) / blocks : undefined);
    return { value: share, text: percent(share).replace(" %", ""), unit: share === undefined ? "" : "%", note: `${count(blocks - free)} of ${count(blocks)} blocks` };
  }],
  ["Prefix-cache hits", ({ m }) => {
    const { queries, hits } = m.prefix_cache ?? {};
    const share = queries ? hits / queries : undefined;
    return { value: share, text: percent(share).replace(" %", ""), unit: share === undefined ? "" : "%", note: `${count(hits)} of ${count(queries)} tokens` };
  }],
  ["Requests per second", ({ m }) => ({ value: m.throughput_rps, text: rate(m.throughput_rps), note: `p99 ${time(m.latency?.p99).join(" ").trim()} in all` })],
];

function timed(percentiles) {
  const [text, unit] = time(percentiles?.p50);
  const written = (p) => time(percentiles?.[p]).join(" ").trim();
  return { value: percentiles?.p50, text, unit, note: `p90 ${written("p90")}, p99 ${written("p99")}` };
}

export function tiles(parent) {
  const shown = TILES.map(([name, read]) => {
    const value = h("strong", {}, NONE);
    const unit = h("span", { class: "unit" });
    const note = h("p", { class: "note" });
    const line = s("path", { class: "line" });
    const area = s("path", { class: "area" });
    const spark = s("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, area, line);
    parent.append(h("article", { class: "tile" }, h("h2", {}, name), h("p", { class: "value" }, value, unit), note, spark));
    return { read, value, unit, note, line, area, points: [] };
  });
  return {
    /** What the page did not see, as often as frames come: the newest last. */
    past(points) {
      const before = points.slice(-POINTS * SAMPLES).filter((_, at) => at % SAMPLES === 0);
      for (const tile of shown) {
        const values = before.map(([, metrics]) => tile.read({ m: metrics, e: {} }).value ?? 0);
        tile.points = [...values, ...tile.points].slice(-POINTS);
        draw(tile);
      }
    },
    show({ metrics, engine }) {
      for (const tile of shown) {
        const told = tile.read({ m: metrics ?? {}, e: engine ?? {} });
        put(tile.value, told.text);
        put(tile.unit, told.unit ?? "");
        put(tile.note, told.note);
        tile.points.push(told.value ?? 0);
        if (tile.points.length > POINTS) tile.points.shift();
        draw(tile);
      }
    },
  };
}

function draw({ points, line, area }) {
  const top = Math.max(...points) || 1;
  const x = (at) => (WIDTH - (points.length - 1 - at) * (WIDTH / (POINTS - 1))).toFixed(1);
  const y = (value) => (HEIGHT - 1.5 - (value / top) * (HEIGHT - 3)).toFixed(1);
  const path = points.map((value, at) => `${at ? "L" : "M"}${x(at)} ${y(value)}`).join("");
  line.setAttribute("d", path);
  area.setAttribute("d", `${path}L${WIDTH} ${HEIGHT}L${x(0)} ${HEIGHT}Z`);
}
