// The official package for Node: whole, streamed, left early, errors. Usage: node openai_node.cjs BASE_URL
const assert = require("node:assert");
const { OpenAI, BadRequestError, NotFoundError } = require("openai");

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "unused", maxRetries: 0 });
const ask = {
  model: "storyteller",
  messages: [{ role: "user", content: "Tell me a story about a fox named Pip." }],
  temperature: 0,
  max_completion_tokens: 24,
};

async function main() {
  const models = await client.models.list();
  assert.equal(models.data[0].id, "storyteller");

  const whole = await client.chat.completions.create(ask);
  assert.equal(whole.object, "chat.completion");
  assert.ok(whole.choices[0].message.content.length > 0);
  assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);

  let text = "";
  let usage;
  const stream = await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } });
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(usage.total_tokens, whole.usage.total_tokens);
  assert.ok(usage.prompt_tokens_details.cached_tokens > 0, "the prompt was computed a moment ago");

  // The helper that puts chunks together itself.
  const runner = client.chat.completions.stream(ask);
  assert.equal((await runner.finalChatCompletion()).choices[0].message.content, text);

  const left = await client.completions.create({ model: "storyteller", prompt: "The fox", max_tokens: 200, stream: true });
  for await (const _ of left) break;

  const echoed = await client.completions.create({
    model: "storyteller", prompt: "The fox", max_tokens: 3, echo: true, logprobs: 2, temperature: 0,
  });
  assert.ok(echoed.choices[0].text.startsWith("The fox"));
  assert.equal(echoed.choices[0].logprobs.token_logprobs[0], null);

  await assert.rejects(client.chat.completions.create({ ...ask, temperature: 9 }), (error) => {
    return error instanceof BadRequestError && error.param === "temperature" && error.code === "invalid_value";
  });
  await assert.rejects(client.chat.completions.create({ ...ask, model: "gpt-17" }), NotFoundError);
  // Refused while it is still being written: the answer arrives all the same.
  await assert.rejects(client.completions.create({ model: "storyteller", prompt: "a".repeat(9 << 20) }), (error) => {
    return error.status === 413;
  });
  console.log("openai-node ok");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
