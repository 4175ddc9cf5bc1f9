// The last five minutes, by uPlot. What happened before the page was opened comes from the server's history.

import uPlot from "./uPlot.esm.js";
import { colour, count, duration, h, percent, put, rate } from "./dom.js";

export const SECONDS = 300;
/** A page that was just opened is not mostly empty. */
const LEAST_SECONDS = 60;
const HEIGHT = 132;
const PRIORITIES = ["critical", "high", "normal", "low", "batch"];
const percentiles = ["p50", "p90", "p99"];

const CHARTS = [
  {
    title: "Requests by priority",
    stacked: true,
    whole: true,
    series: PRIORITIES.map((name, at) => [name, `s${at + 1}`, (m) => sum(m.requests?.[name])]),
    write: count,
  },
  {
    title: "Tokens per second",
    series: [
      ["generated", "s2", (m) => m.tokens_per_second?.generation],
      ["prompt", "l3", (m) => m.tokens_per_second?.prompt],
    ],
    fill: true,
    write: rate,
  },
  {
    title: "Queue depth and batch size",
    series: [
      ["queued", "s2", (m) => m.queue_depth],
      ["batch", "l3", (m) => m.avg_batch_size],
    ],
    fill: true,
    write: rate,
  },
  {
    title: "Time to first token",
    series: percentiles.map((p, at) => [p, ["s2", "l2", "l3"][at], (m) => m.ttft?.[p]]),
    write: duration,
  },
  {
    title: "Between tokens",
    series: percentiles.map((p, at) => [p, ["s2", "l2", "l3"][at], (m) => m.inter_token?.[p]]),
    write: duration,
  },
  {
    title: "KV cache",
    series: [
      ["in use", "s2", (m) => share(m.kv, (kv) => kv.blocks - kv.free)],
      ["with content", "l3", (m) => share(m.kv, (kv) => kv.cached)],
    ],
    fill: true,
    least: 0.1,
    most: 1,
    write: percent,
  },
];

const sum = (both) => both && (both.queued ?? 0) + (both.running ?? 0);
const share = (kv, part) => (kv?.blocks ? part(kv) / kv.blocks : undefined);

export function charts(parent) {
  const shown = CHARTS.map((chart) => make(chart, parent));
  const redraw = () => shown.forEach((chart) => chart.build());
  addEventListener("themechange", redraw);
  new ResizeObserver(() => shown.forEach((chart) => chart.resize())).observe(parent);
  const add = (at, metrics) => shown.forEach((chart) => chart.add(at, metrics));
  let newest = 0;
  return {
    /** What the page did not see, `[at, metrics]`. */
    past(points) {
      shown.forEach((chart) => chart.prepend(points));
      if (newest) shown.forEach((chart) => chart.draw(newest));
    },
    /** Nobody knows what comes between the last frame and the next: no line is drawn there. */
    lost: () => newest && add(newest + 1e-3, {}),
    show({ at, metrics }) {
      if (!metrics) return;
      newest = at / 1e3;
      add(newest, metrics);
      shown.forEach((chart) => chart.draw(newest));
    },
  };
}

function make(chart, parent) {
  const values = chart.series.map(([name, tint]) => {
    const value = h("b", {}, "");
    return { value, item: h("li", {}, h("i", { class: `key ${tint}` }), `${name} `, value) };
  });
  const body = h("div", { class: "plot", role: "img", "aria-label": chart.title });
  const legend = h("ul", { class: "legend" }, ...values.map(({ item }) => item));
  parent.append(h("article", { class: "card chart" }, h("header", {}, h("h2", {}, chart.title), legend), body));
  const times = [];
  const columns = chart.series.map(() => []);
  let plot;
  let under;

  const data = () => (chart.stacked ? [times, ...stacked(columns)] : [times, ...columns]);
  const write = (at) => {
    columns.forEach((column, index) => put(values[index].value, chart.write(column[at] ?? undefined)));
  };
  const latest = () => under === undefined && write(times.length - 1);

  function build() {
    plot?.destroy();
    plot = new uPlot(options(chart, body.clientWidth, (index) => {
      under = index ?? undefined;
      if (under === undefined) latest();
      else write(under);
    }), data(), body);
  }

  build();
  return {
    build,
    resize: () => plot.setSize({ width: body.clientWidth, height: HEIGHT }),
    add(at, metrics) {
      times.push(at);
      chart.series.forEach(([, , read], index) => columns[index].push(read(metrics) ?? null));
      while (times[0] < at - SECONDS) {
        times.shift();
        columns.forEach((column) => column.shift());
      }
    },
    prepend(points) {
      const older = points.filter(([at]) => !times.length || at < times[0]);
      times.unshift(...older.map(([at]) => at));
      columns.forEach((column, index) => column.unshift(...older.map(([, m]) => chart.series[index][2](m) ?? null)));
    },
    draw(now) {
      latest();
      plot.setData(data(), false);
      plot.batch(() => {
        plot.setScale("x", { min: now - Math.min(SECONDS, Math.max(LEAST_SECONDS, now - times[0])), max: now });
        plot.setScale("y", range(chart, data()));
      });
    },
  };
}

/** Each column on top of those before; drawn from the last, so that the sums lie behind. */
function stacked(columns) {
  const total = columns[0].map(() => 0);
  return columns.map((column) => column.map((value, at) => (total[at] += value ?? 0)));
}

function range(chart, [, ...columns]) {
  let most = chart.least ?? 0;
  for (const column of columns) for (const value of column) if (value > most) most = value;
  return { min: 0, max: most ? Math.min(most * 1.12, chart.most ?? Infinity) : 1 };
}

function options(chart, width, onCursor) {
  const ink = colour("muted");
  const grid = { stroke: colour("line"), width: 1 };
  const font = "11px system-ui, sans-serif";
  const clock = (ago) => (ago === 0 ? "now" : ago < 60 ? `−${ago} s` : `−${ago / 60} min`);
  // Whole steps before the newest point, wherever that is.
  const step = ({ min, max }) => (max - min > 150 ? 60 : max - min > 75 ? 30 : 15);
  const ago = ({ min, max }) => Array.from({ length: Math.floor(((max - min) * 0.92) / step({ min, max })) + 1 }, (_, at) => at * step({ min, max }));
  return {
    width,
    height: HEIGHT,
    padding: [6, 18, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 5 } },
    scales: { x: { time: false, auto: false }, y: { auto: false } },
    hooks: { setCursor: [(plot) => onCursor(plot.cursor.left >= 0 ? plot.cursor.idx : null)] },
    axes: [
      {
        stroke: ink, font, size: 22, gap: 4, grid: { show: false }, ticks: { show: false },
        splits: (plot) => ago(plot.scales.x).map((seconds) => plot.scales.x.max - seconds),
        values: (plot) => ago(plot.scales.x).map(clock),
      },
      {
        stroke: ink, font, size: 54, gap: 6, grid, ticks: { show: false }, space: 34,
        // Nobody is half a request.
        incrs: chart.whole ? [1, 2, 5].flatMap((n) => [n, n * 10, n * 100, n * 1_000]).sort((a, b) => a - b) : undefined,
        values: (_, splits) => splits.map((value) => chart.write(value).replace(/\.0+ /, " ")),
      },
    ],
    series: [
      {},
      ...chart.series.map(([label, tint]) => ({
        label,
        stroke: colour(tint),
        width: chart.stacked ? 1 : 1.6,
        fill: chart.stacked ? colour(tint) : chart.fill && tint === "s2" ? colour("accent-wash") : undefined,
        points: { show: false },
        spanGaps: false,
      })),
    ],
    bands: chart.stacked ? chart.series.slice(1).map((_, at) => ({ series: [at + 2, at + 1] })) : undefined,
  };
}
