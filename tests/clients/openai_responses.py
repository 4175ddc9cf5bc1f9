"""Responses through the official openai package. Usage: openai_responses.py BASE_URL"""

import sys
from typing import Literal

import openai
from pydantic import BaseModel

client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="unused", max_retries=0)
ask = dict(model="storyteller", input="Tell me a story about a fox named Pip.", temperature=0, max_output_tokens=40)

whole = client.responses.create(**ask, metadata={"a": "b"})
assert whole.object == "response" and whole.id.startswith("resp_"), whole
assert whole.status in ("completed", "incomplete") and whole.metadata == {"a": "b"}, whole
assert whole.output[-1].type == "message" and whole.output_text, whole
assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens <= 40 + whole.usage.input_tokens
assert client.responses.input_tokens.count(input=ask["input"]).input_tokens == whole.usage.input_tokens

# The raw stream, and the helper that checks it as it goes.
events = list(client.responses.create(stream=True, **ask))
assert [event.sequence_number for event in events] == list(range(len(events)))
assert events[0].type == "response.created" and events[-1].response.output_text == whole.output_text
assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
with client.responses.stream(**ask) as stream:
    for event in stream:
        pass

# The same text as a chat's, and it goes on as a conversation.
chat = client.chat.completions.create(
    model="storyteller", messages=[{"role": "user", "content": ask["input"]}], temperature=0, max_completion_tokens=40
)
assert chat.choices[0].message.content == whole.output_text
more = client.responses.create(
    model="storyteller",
    input=[{"role": "user", "content": ask["input"]}, *whole.output, {"role": "user", "content": "And then?"}],
    instructions="Be brief.", temperature=0, max_output_tokens=10,
)
assert more.usage.input_tokens > whole.usage.input_tokens + whole.usage.output_tokens - 2, more.usage
assert more.instructions == "Be brief."


class Animal(BaseModel):
    name: Literal["fox", "owl"]
    legs: Literal[2, 4]


parsed = client.responses.parse(model="storyteller", input="An animal", text_format=Animal, max_output_tokens=100, extra_body={"seed": 3})
assert parsed.status == "completed" and isinstance(parsed.output_parsed, Animal), parsed

logged = client.responses.create(**{**ask, "max_output_tokens": 5}, include=["message.output_text.logprobs"], top_logprobs=2)
logprobs = logged.output[0].content[0].logprobs
assert logprobs and all(len(token.top_logprobs) == 2 for token in logprobs), logprobs


def refused(param, **body):
    try:
        client.responses.create(**{"model": "storyteller", "input": "hi", **body})
    except openai.BadRequestError as error:
        assert error.param == param, (error.param, error.message)
        return
    raise AssertionError(f"expected a refusal of {param}")


refused("previous_response_id", previous_response_id="resp_1")
refused("background", background=True)
refused("input", input="")
refused("input[0].content[0].type", input=[{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}])
refused("max_output_tokens", max_output_tokens=0)
print("openai package", openai.__version__, "ok")
