// The map of the KV cache: a cell for each block, in the order of their ids.

import { $, colour, count, h, percent, put } from "./dom.js";

const KINDS = [
  ["free", "free and empty", "block-free"],
  ["cached", "free, content can be found", "block-cached"],
  ["used", "used by one sequence", "block-used"],
  ["shared", "shared by several", "block-shared"],
];
const HEIGHT = 168;

export function blocks() {
  const parent = $("kv-maps");
  const totals = KINDS.map(([, words, tint]) => {
    const total = h("b", {}, "");
    $("kv-legend").append(h("li", {}, h("i", { class: `key ${tint}` }), `${words} `, total));
    return total;
  });
  let last = [];
  let drawn = [];
  const redraw = () => last.forEach((map, at) => draw(canvas(parent, at, last.length), map, drawn, at));
  const anew = () => {
    drawn = [];
    redraw();
  };
  addEventListener("themechange", anew);
  new ResizeObserver(anew).observe(parent);
  return {
    show({ blocks }) {
      const maps = blocks ?? [];
      if (maps.length !== last.length) {
        parent.replaceChildren();
        drawn = [];
      }
      last = maps;
      redraw();
      const of = (kind) => maps.reduce((sum, map) => sum + map[kind], 0);
      KINDS.forEach(([kind], at) => put(totals[at], count(of(kind))));
      const all = of("blocks");
      const held = of("used") + of("shared");
      const folded = maps[0]?.per_cell > 1 ? `, ${maps[0].per_cell} in a cell` : "";
      put($("kv-sum"), all ? `${count(held)} of ${count(all)} held, ${percent(held / all)}${folded}` : "No cache of its own");
    },
  };
}

function canvas(parent, at, all) {
  parent.children[at] ?? parent.append(h("canvas", { role: "img" }));
  const element = parent.children[at];
  element.dataset.share = all;
  return element;
}

/** The largest whole cell with which the map fits; what does not divide stays empty at the right. */
function draw(element, map, drawn, at) {
  const cells = map.cells;
  if (drawn[at] === cells) return;
  drawn[at] = cells;
  const width = element.parentElement.clientWidth;
  const height = HEIGHT / Number(element.dataset.share);
  let pitch = 16;
  while (pitch > 3 && Math.ceil(cells.length / Math.floor(width / pitch)) * pitch > height) pitch -= 1;
  const columns = Math.max(1, Math.floor(width / pitch));
  const rows = Math.max(1, Math.ceil(cells.length / columns));
  const gap = pitch > 6 ? 2 : 1;
  const ratio = devicePixelRatio || 1;
  element.width = Math.round(columns * pitch * ratio);
  element.height = Math.round(rows * pitch * ratio);
  element.style.width = `${columns * pitch}px`;
  element.style.height = `${rows * pitch}px`;
  const pen = element.getContext("2d");
  pen.scale(ratio, ratio);
  const tints = KINDS.map(([, , tint]) => colour(tint));
  for (let cell = 0; cell < cells.length; cell += 1) {
    pen.fillStyle = tints[cells[cell]];
    pen.fillRect((cell % columns) * pitch, Math.floor(cell / columns) * pitch, pitch - gap, pitch - gap);
  }
  const told = KINDS.map(([kind, words]) => `${map[kind]} ${words}`).join(", ");
  element.setAttribute("aria-label", `${map.blocks} blocks: ${told}`);
}
