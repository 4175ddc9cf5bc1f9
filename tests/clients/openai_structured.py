"""Structured output with the official openai package. Usage: openai_structured.py BASE_URL"""

import json
import re
import sys
from enum import Enum
from typing import List, Literal, Optional, Union

import openai
from pydantic import BaseModel, Field

url = sys.argv[1]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
messages = [{"role": "user", "content": "Tell me about Pip the fox."}]


class Colour(str, Enum):
    red = "red"
    white = "white"


class Paw(BaseModel):
    side: Literal["left", "right"]
    claws: int = Field(ge=0, le=5)


class Fox(BaseModel):
    name: str = Field(max_length=20)
    colour: Colour
    paws: List[Paw] = Field(max_length=2)
    friend: Optional[Union[bool, Paw]]


class Node(BaseModel):
    value: bool
    next: Optional["Node"]


# .parse() makes strict schemas of classes and classes of answers.
for seed in range(4):
    answer = client.chat.completions.parse(
        model="storyteller", messages=messages, response_format=Fox, seed=seed, temperature=1, max_tokens=300
    )
    fox = answer.choices[0].message.parsed
    assert isinstance(fox, Fox) and answer.choices[0].finish_reason == "stop", answer
    assert fox == Fox.model_validate_json(answer.choices[0].message.content)
tree = client.chat.completions.parse(
    model="storyteller", messages=messages, response_format=Node, seed=1, temperature=1, max_tokens=400
)
assert isinstance(tree.choices[0].message.parsed, Node), tree

# A stream of it is the same text.
ask = dict(
    model="storyteller", messages=messages, seed=3, temperature=1, max_tokens=300,
    response_format={"type": "json_schema", "json_schema": {"name": "fox", "schema": Fox.model_json_schema()}},
)
whole = client.chat.completions.create(**ask)
pieces = list(client.chat.completions.create(stream=True, **ask))
assert "".join(p.choices[0].delta.content or "" for p in pieces if p.choices) == whole.choices[0].message.content
assert pieces[-1].choices[0].finish_reason == whole.choices[0].finish_reason
with client.chat.completions.stream(
    model="storyteller", messages=messages, seed=3, temperature=1, max_tokens=300, response_format=Fox
) as stream:
    assert isinstance(stream.get_final_completion().choices[0].message.parsed, Fox)

# Any object; several choices.
some = client.chat.completions.create(
    model="storyteller", messages=messages, n=3, seed=5, temperature=1, max_tokens=900,
    response_format={"type": "json_object"},
)
for choice in some.choices:
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content), dict), choice

# vLLM's names, through extra_body, on both endpoints.
def complete(**extra):
    return client.completions.create(
        model="storyteller", prompt="The fox is", max_tokens=60, temperature=1, seed=2, extra_body=extra
    ).choices[0].text

assert complete(guided_choice=["quick", "lazy"]) in ("quick", "lazy")
assert re.fullmatch(r"[a-z]{3,6} [0-9]{2}", complete(guided_regex=r"[a-z]{3,6} [0-9]{2}"))
assert complete(structured_outputs={"regex": "a{7}"}) == "aaaaaaa"
assert Paw.model_validate_json(complete(guided_json=Paw.model_json_schema()))
assert complete(guided_grammar='root ::= "yes" | "no"') in ("yes", "no")
assert complete(grammar='root ::= ("ab" | "cd"){3}') in {a + b + c for a in ("ab", "cd") for b in ("ab", "cd") for c in ("ab", "cd")}

# What cannot be enforced is refused and says why.
for format, param, why in [
    ({"type": "json_schema", "json_schema": {"name": "a", "schema": {"not": {}}}}, "response_format", "not"),
    ({"type": "json_schema", "json_schema": {"name": "a"}}, "response_format.json_schema.schema", "required"),
    ({"type": "xml"}, "response_format.type", "json_schema"),
]:
    try:
        client.chat.completions.create(model="storyteller", messages=messages, response_format=format)
        raise SystemExit(f"accepted: {format}")
    except openai.BadRequestError as error:
        assert error.param == param and why in error.message, error
