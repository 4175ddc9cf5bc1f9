// Puts the page together: one stream in, every panel shows its part.

import { $, count, percent, put } from "./dom.js";
import { askAgain, follow, forgetKeys, hasDeclined, hasKey, json, onKeyNeeded } from "./server.js";
import { advice } from "./advice.js";
import { blocks } from "./blocks.js";
import { SECONDS, charts } from "./charts.js";
import { classes } from "./classes.js";
import { chat } from "./chat.js";
import { requests } from "./requests.js";
import { tiles } from "./tiles.js";
import { tuning } from "./tuning.js";
import { workers } from "./workers.js";

onKeyNeeded((role, wasWrong) => {
  const dialog = $("key-dialog");
  put($("key-why"), wasWrong ? "The server did not accept that key." : "This server asks for one.");
  put($("key-label"), role === "admin" ? "Admin key" : "Inference key");
  put($("key-title"), role === "admin" ? "A key for the dashboard" : "A key for the chat");
  $("key-text").value = "";
  dialog.showModal();
  return new Promise((done) => {
    const finish = (key) => {
      dialog.onclose = null;
      dialog.close();
      done(key);
      setTimeout(keyButton);
    };
    $("key-form").onsubmit = (event) => {
      event.preventDefault();
      finish($("key-text").value.trim());
    };
    $("key-cancel").onclick = () => finish(null);
    dialog.onclose = () => finish(null);
  });
});

/** What can be done about keys: enter one that was not given, forget one that was. */
function keyButton() {
  put($("keys"), hasDeclined() ? "Enter key" : "Forget key");
  $("keys").hidden = !hasDeclined() && !hasKey();
}
keyButton();
$("keys").addEventListener("click", () => {
  if (hasDeclined()) {
    askAgain();
    keyButton();
    stream.retry();
    return;
  }
  forgetKeys();
  location.reload();
});

const panels = [tiles($("now")), charts(document.querySelector(".charts")), blocks(), workers(), classes(), requests(), tuning(), advice(), chat()];
const WORDS = { live: "Live", lost: "Disconnected", refused: "Refused" };

/** What the page says about its connection: quietly while all is well, across its width when it is not. */
function connection({ state, message, retryIn }) {
  const pill = $("status");
  if (pill.dataset.state !== state) {
    pill.dataset.state = state;
    put($("status-text"), WORDS[state]);
    document.body.classList.toggle("stale", state !== "live");
    if (state === "live") greet();
    else panels.forEach((panel) => panel.lost?.());
  }
  const banner = $("banner");
  banner.hidden = state === "live";
  if (state === "live") return;
  // Read out once; the countdown is for the eye.
  if (banner.dataset.message !== message) {
    banner.dataset.message = message;
    banner.replaceChildren(message, " The numbers below are the last that came. ");
    banner.append(Object.assign(document.createElement("span"), { ariaHidden: "true" }));
  }
  put(banner.lastElementChild, `Trying again in ${retryIn} s.`);
}

let greeted = false;

/** What happened before the page was opened. */
async function past() {
  try {
    const opened = Date.now();
    const { data } = await json(`metrics/json/history?since=${new Date(opened - SECONDS * 1e3).toISOString()}`);
    const points = data.map((point) => [Date.parse(point.timestamp) / 1e3, point]).filter(([at]) => at * 1e3 < opened);
    for (const panel of panels) panel.past?.(points);
  } catch {
    // Then it begins now.
  }
}

/** What only changes when the server does. */
async function greet() {
  for (const panel of panels) panel.greet?.();
  if (!greeted) past();
  greeted = true;
  try {
    const { data } = await json("v1/models", { role: "inference", quiet: true });
    put($("model"), data[0]?.id ?? "");
    for (const panel of panels) panel.models?.(data);
  } catch {
    put($("model"), "");
  }
}

let frames = 0;
const stream = follow((frame) => {
  for (const panel of panels) panel.show(frame);
  const { queue_depth: queued } = frame.metrics ?? {};
  document.title = queued ? `(${count(queued)}) Forebay` : "Forebay";
  const kv = frame.metrics?.kv;
  $("status").title = kv ? `KV cache ${percent(kv.usage)}` : "";
  document.body.dataset.frames = String(++frames);
}, connection);
