// The dashboard in a real browser. Usage: node dashboard.cjs SCENARIO BASE_URL; CHROMIUM names the browser, SHOTS a folder for
// pictures. Waits for what it wants to see, however long a busy machine takes for it.
const assert = require("node:assert");
const fs = require("node:fs");
const net = require("node:net");
const os = require("node:os");
const path = require("node:path");
const { chromium } = require("playwright-core");

const [, , scenario, base] = process.argv;
const PATIENCE = 240_000;
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server"];

/** What went wrong in a page, beside what a scenario expects to. */
const faults = [];
let expected = () => false;

async function shoot(page, name) {
  if (!process.env.SHOTS) return;
  fs.mkdirSync(process.env.SHOTS, { recursive: true });
  await page.screenshot({ path: path.join(process.env.SHOTS, `${name}.png`) });
}

async function open(context, url = base) {
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const fault = (text) => expected(text) || faults.push(text);
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && fault(`console: ${message.text()}`));
  page.on("pageerror", (error) => fault(`page: ${error.message}`));
  page.on("requestfailed", (request) => fault(`failed: ${request.url()} ${request.failure()?.errorText}`));
  page.on("response", (response) => response.status() >= 400 && fault(`${response.status()}: ${response.url()}`));
  page.on("request", (request) => request.url().startsWith(url) || fault(`elsewhere: ${request.url()}`));
  await page.goto(`${url}/dashboard`, { timeout: PATIENCE });
  return page;
}

const live = (page) => page.waitForSelector("#status[data-state=live]");
const frames = (page, more) => page.evaluate((more) => Number(document.body.dataset.frames ?? 0) + more, more)
  .then((wanted) => page.waitForFunction((wanted) => Number(document.body.dataset.frames) >= wanted, wanted));
/** Until a tile shows something, or nothing. */
const until = (page, name, wanted) => page.waitForFunction(([name, wanted]) => {
  const tiles = [...document.querySelectorAll(".tile")];
  const text = tiles.find((tile) => tile.querySelector("h2").textContent === name)?.querySelector("strong").textContent ?? "";
  const value = Number(text.replaceAll(",", ""));
  return wanted === "something" ? value > 0 : value === 0;
}, [name, wanted]);

/** Requests that go on until the scenario has seen enough. */
function load(many = 6) {
  const control = new AbortController();
  const one = async (at) => {
    for (let n = 0; !control.signal.aborted; n += 1) {
      const body = { model: "storyteller", prompt: `Story ${at} ${n}. Once upon a time there was a small fox`, max_tokens: 160, ignore_eos: true, stream: true, priority: ["critical", "high", "normal", "low"][at % 4] };
      const answer = await fetch(`${base}/v1/completions`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal: control.signal });
      assert.equal(answer.status, 200);
      for await (const _ of answer.body);
    }
  };
  const all = Promise.allSettled(Array.from({ length: many }, (_, at) => one(at)));
  return async () => {
    control.abort();
    await all;
  };
}

const admin = async (route, options) => (await fetch(`${base}/admin/${route}`, options)).json();
const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

const scenarios = {
  /** Opens without an error, from nowhere but the server, under its policy. */
  async loads(context) {
    const answer = await fetch(`${base}/dashboard`);
    assert.match(answer.headers.get("content-security-policy"), /default-src 'none'; script-src 'self'; style-src 'self'/);
    const page = await open(context);
    await live(page);
    await frames(page, 3);
    assert.equal(await page.locator(".tile").count(), 8);
    assert.equal(await page.locator(".chart canvas").count(), 6);
    assert.match(await page.locator("#kv-maps canvas").first().getAttribute("aria-label"), /blocks/);
    assert.equal(await page.locator("#workers-table tbody tr").count(), 1);
    assert.equal(await page.locator("#classes-table tbody tr").count(), 5);
    assert.ok(await page.locator("#tuning-balancer").isHidden());
    assert.equal(await page.locator("#model").textContent(), "storyteller");
    assert.ok((await page.locator("#tune-strategy option").count()) >= 4);
  },

  /** Every number moves while there is work, and requests show how they were scheduled. */
  async moves(context) {
    const page = await open(context);
    await live(page);
    const stop = load();
    await until(page, "Tokens per second", "something");
    await until(page, "KV cache in use", "something");
    await until(page, "Batch size", "something");
    await until(page, "Requests per second", "something");
    await until(page, "Prefix-cache hits", "something");
    await page.waitForFunction(() => {
      const cells = document.querySelectorAll(".row[data-state=decode] .output");
      window.before ??= cells[0]?.textContent;
      return [...cells].some((cell) => window.before && cell.textContent !== window.before);
    });
    await page.waitForSelector(".row[data-state=ended] .phase.decode");
    await page.waitForSelector("#workers-table .state[data-mood=good]");
    // Each class by itself: times once one of its requests was answered, predictions once a step's cost is known.
    await page.waitForFunction(() => {
      const rows = [...document.querySelectorAll("#classes-table tbody tr")];
      const cells = rows.map((row) => [...row.cells].map((cell) => cell.textContent));
      const asked = cells.filter(([name]) => name !== "batch");
      return cells.length === 5 && asked.every(([, , , p50, p99]) => / (µs|ms|s)$/.test(p50) && / (µs|ms|s)$/.test(p99))
        && asked.some(([, , , , , predicted, off]) => / (µs|ms|s)$/.test(predicted) && / %$/.test(off));
    });
    await page.evaluate(() => document.querySelector("input[value=ended]").click());
    // Rows move while there is work: the script clicks where a hand would have to aim.
    await page.evaluate(() => document.querySelector(".row[data-state=ended]").click());
    await page.waitForFunction(() => /released/.test(document.querySelector(".decisions")?.textContent) && /first token/.test(document.querySelector(".decisions").textContent));
    await page.evaluate(() => document.querySelector(".row[aria-expanded=true]").click());
    await page.evaluate(() => document.querySelector("input[value=all]").click());
    for (const [scheme, width, height] of [["light", 1440, 1000], ["dark", 1440, 1000], ["light", 380, 800], ["dark", 380, 800]]) {
      await page.emulateMedia({ colorScheme: scheme });
      await page.setViewportSize({ width, height });
      await page.evaluate(() => scrollTo(0, 0));
      await frames(page, 2);
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), scheme);
      await shoot(page, `dashboard-${scheme}-${width}`);
    }
    await stop();
    await until(page, "Queue depth", "nothing");
  },

  /** Where there are several workers the balancer can be chosen; a parameter that is a name is chosen from its names. */
  async balances(context) {
    const page = await open(context);
    await live(page);
    const panel = page.locator("#tuning-balancer");
    await panel.waitFor();
    await page.waitForSelector("#tune-balancer option", { state: "attached" });
    await page.waitForFunction(() => /2 of 2 well, prefix aware/.test(document.getElementById("workers-sum").textContent));
    await page.selectOption("#tune-balancer", "least_loaded");
    await panel.getByRole("button", { name: "Switch" }).click();
    await page.waitForFunction(() => /least loaded/.test(document.getElementById("workers-sum").textContent));
    assert.equal((await admin("balancer")).name, "least_loaded");
    await fetch(`${base}/admin/balancer/round_robin`, { method: "POST" });
    await page.waitForFunction(() => document.getElementById("tune-balancer").value === "round_robin");

    const policy = page.locator("#tuning-policy");
    await policy.locator("summary").click();
    await policy.locator("select[name=preemption]").selectOption("longest");
    await policy.getByRole("button", { name: "Save" }).click();
    await page.waitForSelector("#tuning-said[data-mood=good]");
    await page.waitForFunction(() => document.getElementById("tuning-said").textContent.startsWith("Saved"));
    assert.equal((await admin("policy")).parameters.preemption, "longest");
  },

  /** A switch made in the page is seen on /admin, and one made there is seen in the page. */
  async switches(context) {
    const page = await open(context);
    await live(page);
    await page.waitForSelector("#tune-strategy option", { state: "attached" });
    const before = await admin("strategy");
    const other = before.available.find((name) => name !== before.name);
    await page.selectOption("#tune-strategy", other);
    await page.getByRole("button", { name: "Switch" }).first().click();
    await page.waitForSelector("#tuning-said[data-mood=good]");
    assert.equal((await admin("strategy")).name, other);

    const policy = await admin("policy");
    const next = policy.available.find((name) => name !== policy.name);
    await page.selectOption("#tune-policy", next);
    await page.getByRole("button", { name: "Switch" }).nth(1).click();
    await page.waitForFunction((next) => document.getElementById("tuning-said").textContent.includes(next.replaceAll("_", " ")), next);
    assert.equal((await admin("policy")).name, next);

    await page.locator("summary", { hasText: "Parameters of the strategy" }).click();
    await page.getByLabel("max wait ms").fill("77");
    await page.getByRole("button", { name: "Save" }).first().click();
    await page.waitForFunction(() => document.getElementById("tuning-said").textContent === "Saved.");
    assert.equal((await admin("strategy")).parameters.max_wait_ms, 77);

    await fetch(`${base}/admin/strategy/${before.name}`, { method: "POST" });
    await page.waitForFunction((name) => document.getElementById("tune-strategy").value === name, before.name);
    await page.locator("#audit summary").click();
    await page.waitForFunction(() => /dashboard at/.test(document.getElementById("audit-list").textContent));

    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByRole("button", { name: "Pause" }).waitFor();
    assert.equal((await admin("state")).paused, false);
  },

  /** The comparison is shown, and a row of it applied. */
  async advises(context) {
    const one = (n) => fetch(`${base}/v1/completions`, {
      method: "POST", headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "storyteller", prompt: `A tale of ${n} foxes`, max_tokens: 6 + (n % 20) }),
    }).then((answer) => answer.json());
    // Until it has seen enough to say anything.
    for (let n = 0; !(await admin("strategy/recommend?window=10m")).predictions.length; n += 30) {
      for (let at = 0; at < 30; at += 6) await Promise.all([0, 1, 2, 3, 4, 5].map((more) => one(n + at + more)));
    }
    const page = await open(context);
    await live(page);
    // Beside each choice stands what it is expected to change, and how good predictions were.
    const before = await admin("strategy");
    for (const name of ["strategy", "policy"]) {
      await page.focus(`#tune-${name}`);
      await page.waitForSelector(`#tuning-${name} .expected li`);
      const told = await page.locator(`#tuning-${name} .expected li`).allTextContents();
      const others = name === "strategy" ? before.available.length - 1 : (await admin("policy")).available.length - 1;
      assert.equal(told.length, others + 1, told.join("; "));
      assert.ok(told.slice(0, -1).every((one) => / no difference expected$| (TTFT|between tokens|tokens\/s|in time\/s).*( %|above 0)$/.test(one)), told.join("; "));
      assert.match(told.at(-1), /^predicted from \d+ requests; .* off by up to \d+ %$/);
    }
    await page.getByRole("button", { name: "Compare" }).click();
    await page.waitForSelector("#advice-verdict:not([hidden])");
    await page.waitForSelector("#advice-table tbody tr");
    const first = page.locator("#advice-table tbody tr", { has: page.getByRole("button", { name: /^Apply/ }) }).first();
    const [strategy, policy] = (await first.getByRole("button", { name: /^Apply/ }).getAttribute("aria-label")).replace("Apply ", "").split(" with ");
    await first.getByRole("button", { name: /^Apply/ }).click();
    await page.waitForFunction(() => /is in force now/.test(document.getElementById("advice-verdict").textContent));
    assert.equal((await admin("strategy")).name.replaceAll("_", " "), strategy);
    assert.equal((await admin("policy")).name.replaceAll("_", " "), policy);
  },

  /** A request that others overtook says by whom and why, and its class how many were served as promised. */
  async overtakes(context) {
    const ask = (priority, n) => fetch(`${base}/v1/completions`, {
      method: "POST", headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "storyteller", prompt: `A ${priority} tale of ${n} foxes`, max_tokens: 4, priority }),
    }).then((answer) => answer.json());
    const page = await open(context);
    await live(page);
    await fetch(`${base}/admin/pause`, { method: "POST" });
    const queued = async (wanted) => {
      while ((await admin("state")).queue_depth < wanted) await new Promise((done) => setTimeout(done, 20));
    };
    const asked = [ask("low", 1)];
    await queued(1);
    asked.push(ask("critical", 2), ask("critical", 3));
    await queued(3);
    await fetch(`${base}/admin/resume`, { method: "POST" });
    await Promise.all(asked);
    await page.waitForFunction(() => document.querySelectorAll(".row[data-state=ended]").length === 3);
    await page.evaluate(() => [...document.querySelectorAll(".row[data-state=ended]")].find((row) => row.querySelector(".priority").textContent === "low").click());
    await page.waitForSelector(".overtaken");
    assert.equal(await page.locator(".overtaken").textContent(), "Overtaken in the queue by 2 that came later (critical 2): 2 more urgent.");
    await page.waitForFunction(() => [...document.querySelectorAll("#classes-table tbody tr")].some((row) => row.cells[0].textContent === "low" && / %$/.test(row.cells[7].textContent)));
  },

  /** The chat streams an answer, and the request stands in the list. */
  async chats(context) {
    const page = await open(context);
    await live(page);
    await page.waitForSelector("#chat-model option", { state: "attached" });
    await page.fill("#chat-tokens", "24");
    await page.fill("#chat-text", "Tell me a story about a fox named Pip.");
    await page.press("#chat-text", "Enter");
    await page.waitForFunction(() => /First token after .* tokens/.test(document.querySelector(".message.assistant .note")?.textContent));
    const said = await page.locator(".message.assistant p").first().textContent();
    assert.ok(said.trim().length > 20, said);
    await page.waitForFunction(() => [...document.querySelectorAll(".row .id")].some((id) => id.textContent.startsWith("chatcmpl-")));
    // The whole conversation is sent along.
    await page.fill("#chat-text", "And then?");
    await page.getByRole("button", { name: "Send" }).click();
    await page.waitForFunction(() => document.querySelectorAll(".message.assistant").length === 2 && !document.querySelector("[aria-busy]"));
    await shoot(page, "dashboard-chat");
    await page.getByRole("button", { name: "Clear" }).click();
    assert.equal(await page.locator(".message").count(), 0);
  },

  /** Everything is reached and done without a mouse, and what has the focus can be seen. */
  async keyboard(context) {
    const page = await open(context);
    await live(page);
    await page.waitForSelector("#tune-policy option", { state: "attached" });
    const seen = [];
    const focused = () => page.evaluate(() => {
      const element = document.activeElement;
      if (!element || element === document.body) return null;
      const shown = element.matches(".switch input") ? element.parentElement : element;
      const style = getComputedStyle(shown);
      return { name: element.id || element.name || element.textContent.trim().slice(0, 40), outline: style.outlineStyle !== "none" && style.outlineWidth !== "0px", labelled: Boolean(element.labels?.length || element.textContent.trim() || element.getAttribute("aria-label")) };
    });
    for (let step = 0; step < 120; step += 1) {
      await page.keyboard.press("Tab");
      const now = await focused();
      if (!now || (seen.length && now.name === seen[0].name)) break;
      seen.push(now);
    }
    const names = seen.map((one) => one.name);
    assert.ok(seen.length < 110, `a trap: ${names}`);
    for (const wanted of ["Skip to the numbers", "theme", "which", "advice-window", "pause", "tune-strategy", "tune-policy", "chat-text", "chat-model", "chat-send"]) {
      assert.ok(names.includes(wanted), `${wanted} is not reached: ${names}`);
    }
    assert.deepEqual(seen.filter((one) => !one.outline).map((one) => one.name), [], "focus is seen");
    assert.deepEqual(seen.filter((one) => !one.labelled).map((one) => one.name), [], "each has a name");

    const before = await admin("policy");
    await page.focus("#tune-policy");
    const at = before.available.indexOf(before.name);
    await page.keyboard.press(at + 1 < before.available.length ? "ArrowDown" : "ArrowUp");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#tuning-said[data-mood=good]");
    assert.notEqual((await admin("policy")).name, before.name);

    await page.focus("#theme");
    const theme = await page.evaluate(() => document.documentElement.dataset.theme);
    await page.keyboard.press("Space");
    assert.notEqual(await page.evaluate(() => document.documentElement.dataset.theme), theme);

    await page.focus("#chat-text");
    await page.keyboard.type("Hello");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".row[data-state=ended]");
    await page.focus(".row");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".decisions tbody tr");
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-expanded")), "true", "the focus stays");
  },

  /** 380 px, with everything open: nothing sticks out. */
  async narrow(context) {
    const page = await open(context);
    await page.setViewportSize({ width: 380, height: 800 });
    await live(page);
    const stop = load(3);
    await page.waitForSelector(".row[data-state=ended]");
    await page.evaluate(() => document.querySelectorAll("details").forEach((one) => (one.open = true)));
    await page.evaluate(() => document.querySelector(".row").click());
    await page.waitForSelector(".decisions tbody tr");
    await page.getByRole("button", { name: "Compare" }).click();
    await page.waitForSelector("#advice-verdict:not([hidden])");
    await frames(page, 2);
    const wide = await page.evaluate(() => [...document.querySelectorAll("main *, aside *, .bar *")]
      .filter((one) => !one.closest(".scroll, .plot, .hidden, .opened .table, .switch input") && one.getBoundingClientRect().right > innerWidth + 1)
      .map((one) => one.outerHTML.slice(0, 80)));
    assert.deepEqual(wide, []);
    assert.equal(await overflow(page), 0);
    await shoot(page, "dashboard-narrow-open");
    await stop();
  },

  /** The server goes away and comes back: the page says so, and goes on by itself. */
  async reconnects(context) {
    const target = new URL(base);
    const sockets = new Set();
    const between = net.createServer((near) => {
      const far = net.connect(Number(target.port), target.hostname);
      for (const socket of [near, far]) {
        sockets.add(socket);
        socket.on("error", () => {});
        socket.on("close", () => [near, far].forEach((one) => one.destroy()));
      }
      near.pipe(far).pipe(near);
    });
    const listen = (port) => new Promise((done) => between.listen(port, "127.0.0.1", () => done(between.address().port)));
    const port = await listen(0);
    const page = await open(context, `http://127.0.0.1:${port}`);
    await live(page);
    await frames(page, 1);
    expected = () => true;
    between.close();
    sockets.forEach((socket) => socket.destroy());
    await page.waitForSelector("#status[data-state=lost]");
    assert.match(await page.getByRole("alert").textContent(), /does not answer|ended the stream/);
    assert.equal(await page.locator("#status-text").textContent(), "Disconnected");
    await shoot(page, "dashboard-lost");
    await listen(port);
    await live(page);
    await frames(page, 2);
    assert.ok(await page.locator("#banner").isHidden());
    between.close();
    sockets.forEach((socket) => socket.destroy());
  },

  /** Where a key is wanted it is asked for, again if it is wrong, and kept for this tab alone. */
  async keys(context) {
    expected = (text) => /401|ERR_ABORTED/.test(text);
    await context.route(/\/admin\//, (route) => {
      if (route.request().headers().authorization === "Bearer right") return route.continue();
      const error = { message: "no", type: "authentication_error", param: null, code: "invalid_api_key" };
      return route.fulfill({ status: 401, contentType: "application/json", body: JSON.stringify({ error }) });
    });
    const page = await open(context);
    await page.getByLabel("Admin key").fill("wrong");
    await page.keyboard.press("Enter");
    await page.getByText("did not accept that key").waitFor();
    await page.getByLabel("Admin key").fill("right");
    await page.getByRole("button", { name: "Continue" }).click();
    await live(page);
    await frames(page, 1);
    const kept = await page.evaluate(() => [Object.values(sessionStorage), Object.values(localStorage)]);
    assert.deepEqual(kept, [["right"], []]);
    await page.reload();
    await live(page);
    await page.getByRole("button", { name: "Forget key" }).click();
    await page.getByLabel("Admin key").waitFor();
  },
};

async function main() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "forebay-dashboard-"));
  const context = await chromium.launchPersistentContext(folder, {
    executablePath: process.env.CHROMIUM, args: FLAGS, viewport: { width: 1440, height: 1000 }, timeout: PATIENCE,
  });
  try {
    await scenarios[scenario](context);
    assert.deepEqual(faults, []);
  } catch (error) {
    const page = context.pages().at(-1);
    if (page) await shoot(page, `failed-${scenario}`).catch(() => {});
    if (faults.length) console.error(faults);
    throw error;
  } finally {
    await context.close();
    fs.rmSync(folder, { recursive: true, force: true });
  }
  console.log(`dashboard ${scenario} ok`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
