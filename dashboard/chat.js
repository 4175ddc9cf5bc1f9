// A conversation with the model, streamed, with what each answer cost.

import { $, count, duration, h, put, rate } from "./dom.js";
import { ask, events } from "./server.js";

export function chat() {
  const log = $("chat-log");
  const text = $("chat-text");
  const send = $("chat-send");
  let messages = [];
  let running = null;

  const hint = () => log.append(h("p", { class: "empty" }, "Answers stream in here. Watch the request appear in the list."));
  const toEnd = (element) => {
    // Whoever reads further up is left there.
    const near = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    return () => near && element.scrollIntoView?.call && (log.scrollTop = log.scrollHeight);
  };
  const bubble = (role, content) => {
    log.querySelector(".empty")?.remove();
    const body = h("p", {}, content);
    const cost = h("p", { class: "note" });
    const element = h("div", { class: `message ${role}` }, h("h3", {}, role === "user" ? "You" : "Model"), body, cost);
    log.append(element);
    log.scrollTop = log.scrollHeight;
    return { element, body, cost };
  };

  async function answer() {
    const control = new AbortController();
    running = control;
    put(send, "Stop");
    const { element, body, cost } = bubble("assistant", "");
    element.setAttribute("aria-busy", "true");
    const began = performance.now();
    let first;
    let usage;
    let said = "";
    try {
      const response = await ask("v1/chat/completions", { role: "inference", method: "POST", signal: control.signal, body: asked(messages) });
      for await (const payload of events(response)) {
        if (payload === "[DONE]") break;
        const chunk = JSON.parse(payload);
        if (chunk.error) throw new Error(chunk.error.message);
        usage = chunk.usage ?? usage;
        const delta = chunk.choices?.[0]?.delta;
        const more = delta?.content ?? "";
        if (!more && !delta?.reasoning_content) continue;
        first ??= performance.now();
        said += more;
        const follow = toEnd(element);
        put(body, said);
        follow();
      }
      messages.push({ role: "assistant", content: said });
      put(cost, told(began, first, usage));
    } catch (error) {
      const stopped = control.signal.aborted;
      put(cost, stopped ? "Stopped." : error.message);
      if (!stopped) element.classList.add("failed");
      // What was half said is part of the conversation; what was never answered is not.
      if (said) messages.push({ role: "assistant", content: said });
      else messages.pop();
    } finally {
      element.removeAttribute("aria-busy");
      log.scrollTop = log.scrollHeight;
      running = null;
      put(send, "Send");
    }
  }

  $("chat-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (running) return running.abort();
    const content = text.value.trim();
    if (!content) return;
    text.value = "";
    messages.push({ role: "user", content });
    bubble("user", content);
    answer();
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!running) $("chat-form").requestSubmit();
    }
  });
  $("chat-clear").addEventListener("click", () => {
    running?.abort();
    messages = [];
    log.replaceChildren();
    hint();
    text.focus();
  });
  hint();
  return {
    show() {},
    models(list) {
      const before = $("chat-model").value;
      $("chat-model").replaceChildren(...list.map(({ id }) => h("option", { value: id }, id)));
      if (list.some(({ id }) => id === before)) $("chat-model").value = before;
    },
  };
}

function asked(messages) {
  const number = (id) => ($(id).value === "" ? undefined : Number($(id).value));
  return {
    model: $("chat-model").value || "default",
    messages,
    stream: true,
    stream_options: { include_usage: true },
    priority: $("chat-priority").value,
    temperature: number("chat-temperature"),
    max_completion_tokens: number("chat-tokens"),
  };
}

function told(began, first, usage) {
  if (!first) return "It said nothing.";
  const tokens = usage?.completion_tokens;
  const seconds = (performance.now() - first) / 1e3;
  const cached = usage?.prompt_tokens_details?.cached_tokens;
  const speed = tokens > 1 && seconds > 0 ? `, ${rate((tokens - 1) / seconds)} tokens/s` : "";
  return `First token after ${duration(first - began)}, ${count(tokens)} tokens${speed}${cached ? `, ${count(cached)} of ${count(usage.prompt_tokens)} prompt tokens from the cache` : ""}`;
}
