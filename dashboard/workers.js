// Who takes requests, and how each is.

import { $, count, h, keyed, percent, put, s, said } from "./dom.js";

export function workers() {
  const body = $("workers-table").tBodies[0];
  return {
    show({ engine }) {
      const list = engine?.workers ?? [];
      keyed(body, list, (worker) => worker.id, make, update);
      const well = list.filter((worker) => worker.status !== "unhealthy" && worker.breaker === "closed").length;
      put($("workers-sum"), list.length ? `${count(well)} of ${count(list.length)} well${list.length > 1 ? `, ${said(engine.balancer)}` : ""}` : "");
    },
  };
}

function make(worker) {
  const cells = {
    status: h("td", {}, h("span", { class: "state" }, h("span", { class: "dot" }), h("span"))),
    breaker: h("td", {}, h("span", { class: "state" }, h("span", { class: "dot" }), h("span"))),
    pending: h("td", { class: "num" }),
    busy: h("td", {}, meter()),
    done: h("td", { class: "num" }),
    failed: h("td", { class: "num" }),
  };
  const name = h("th", { scope: "row", title: worker.url ?? worker.kind }, worker.id, worker.url ? h("span", { class: "note" }, ` ${worker.kind}`) : null);
  const row = h("tr", {}, name, ...Object.values(cells));
  row.cells_ = cells;
  return row;
}

function meter() {
  const bar = s("svg", { class: "meter", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", { class: "track", width: 100, height: 6 }), s("rect", { class: "full", width: 0, height: 6 }));
  return h("span", { class: "metered" }, bar, h("span", { class: "num" }));
}

function update(row, worker) {
  const { status, breaker, pending, busy, done, failed } = row.cells_;
  tell(status, worker.status, { busy: "good", idle: "calm", unhealthy: "bad" });
  tell(breaker, worker.breaker, { closed: "calm", half_open: "warn", open: "bad" });
  put(pending, count(worker.pending));
  busy.querySelector(".full").setAttribute("width", Math.round(worker.utilisation * 100));
  put(busy.querySelector(".num"), percent(worker.utilisation));
  put(done, count(worker.requests.success));
  put(failed, count(worker.requests.failure));
}

function tell(cell, name, moods) {
  cell.firstElementChild.dataset.mood = moods[name] ?? "warn";
  put(cell.firstElementChild.lastElementChild, said(name));
}
