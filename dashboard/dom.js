// Elements without a framework, and how numbers are written.

/** An element: `h("td", { class: "num" }, "3")`. Properties that are functions listen; `false` and `null` are left out. */
export function h(name, properties = {}, ...children) {
  return filled(document.createElement(name), properties, children);
}

/** The same for SVG. */
export function s(name, properties = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const $ = (id) => document.getElementById(id);

/** Sets a text only where it differs, so that nothing is laid out again for nothing. */
export function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Brings the children of `parent` to `items`, one element per key, made once and kept: focus and selection survive. */
export function keyed(parent, items, key, make, update) {
  const known = (parent.known ??= new Map());
  const wanted = new Set();
  let place = parent.firstElementChild;
  for (const item of items) {
    const id = key(item);
    wanted.add(id);
    let element = known.get(id);
    if (!element) known.set(id, (element = make(item)));
    update(element, item);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
  for (const [id, element] of known) {
    if (wanted.has(id)) continue;
    element.remove();
    known.delete(id);
  }
}

export const NONE = "–";
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** A count, or a rate: whole from 100 on, one decimal below. */
export const count = (value) => (isNumber(value) ? whole.format(value) : NONE);
export const rate = (value) => (isNumber(value) ? (value >= 100 || Number.isInteger(value) ? whole : tenth).format(value) : NONE);
export const percent = (share) => (isNumber(share) ? `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %` : NONE);

/** Milliseconds as `[number, unit]`. */
export function time(ms) {
  if (!isNumber(ms)) return [NONE, ""];
  if (ms === 0) return ["0", "ms"];
  if (ms < 0.0995) return [whole.format(ms * 1e3), "µs"];
  if (ms < 9.95) return [ms.toFixed(ms < 1 ? 2 : 1), "ms"];
  if (ms < 999.5) return [whole.format(ms), "ms"];
  if (ms < 100_000) return [(ms / 1e3).toFixed(ms < 10_000 ? 2 : 1), "s"];
  return [whole.format(ms / 60_000), "min"];
}

/** Milliseconds as text. */
export const duration = (ms) => time(ms).join(" ").trim();

/** `throughput_first` as a reader says it. */
export const said = (name) => String(name ?? NONE).replaceAll("_", " ");

/** A CSS variable of the theme in force. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
