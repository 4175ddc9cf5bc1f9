"""Drives a running server with the official openai package. Usage: openai_sync.py BASE_URL"""

import sys

import openai

url = sys.argv[1]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)

models = client.models.list()
assert [m.id for m in models.data][0] == "storyteller", models
assert client.models.retrieve("storyteller").id == "storyteller"

# Completions: whole equals streamed.
ask = dict(model="storyteller", prompt="Once upon a time", max_tokens=24, temperature=0.7, seed=11)
whole = client.completions.create(**ask)
assert whole.object == "text_completion" and whole.id.startswith("cmpl-"), whole
assert whole.usage.prompt_tokens > 0 and whole.usage.completion_tokens <= 24, whole.usage
assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
pieces = list(client.completions.create(stream=True, **ask))
assert "".join(p.choices[0].text for p in pieces if p.choices) == whole.choices[0].text
assert pieces[-1].choices[0].finish_reason == whole.choices[0].finish_reason

# Chat: roles, finish reasons, usage in the stream, n, logprobs.
messages = [{"role": "user", "content": "Tell me a story about a fox named Pip."}]
chat = client.chat.completions.create(model="default", messages=messages, temperature=0, max_completion_tokens=40)
assert chat.object == "chat.completion" and chat.choices[0].message.role == "assistant", chat
stream = client.chat.completions.create(
    model="default", messages=messages, temperature=0, max_completion_tokens=40, stream=True,
    stream_options={"include_usage": True},
)
chunks = list(stream)
assert chunks[0].choices[0].delta.role == "assistant"
assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == chat.choices[0].message.content
assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == chat.usage.total_tokens, chunks[-1]
assert all(c.usage is None for c in chunks[:-1])
assert len({c.id for c in chunks}) == 1

four = client.chat.completions.create(model="storyteller", messages=messages, n=4, seed=3, max_tokens=16)
assert [c.index for c in four.choices] == [0, 1, 2, 3]
assert len({c.message.content for c in four.choices}) > 1, "choices differ"

logged = client.chat.completions.create(
    model="storyteller", messages=messages, max_tokens=5, temperature=0, logprobs=True, top_logprobs=3
)
for entry in logged.choices[0].logprobs.content:
    assert len(entry.top_logprobs) == 3 and entry.token == entry.top_logprobs[0].token
    assert bytes(entry.bytes).decode("utf-8", "replace") == entry.token
legacy = client.completions.create(model="storyteller", prompt="The fox", max_tokens=4, temperature=0, logprobs=2)
logprobs = legacy.choices[0].logprobs
assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset) == 4, logprobs
assert all(len(top) == 2 for top in logprobs.top_logprobs)

# Stop strings end the text before the stop.
text = client.completions.create(model="storyteller", prompt="Once upon a time", max_tokens=60, temperature=0)
word = text.choices[0].text.split()[5]
cut = client.completions.create(
    model="storyteller", prompt="Once upon a time", max_tokens=60, temperature=0, stop=[word]
)
assert cut.choices[0].text == text.choices[0].text.split(word)[0] and cut.choices[0].finish_reason == "stop"

# Errors arrive as the package's own exceptions, with code and param.
def refused(kind, code, **body):
    try:
        client.completions.create(**{"model": "storyteller", "prompt": "hi", **body})
    except kind as error:
        assert error.code == code and error.request_id, (error.code, error.request_id)
        return error
    raise AssertionError(f"expected {kind.__name__}")

refused(openai.NotFoundError, "model_not_found", model="gpt-17")
refused(openai.BadRequestError, "context_length_exceeded", prompt=[5] * 5000)
assert refused(openai.BadRequestError, "invalid_value", temperature=9).param == "temperature"
print("openai package", openai.__version__, "ok")
