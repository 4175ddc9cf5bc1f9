"""Embeddings through the official openai package. Usage: openai_embeddings.py BASE_URL"""

import math
import sys

import openai

client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="unused", max_retries=0)

# The package asks for base64 by itself and hands out numbers.
answer = client.embeddings.create(model="storyteller", input=["A fox named Pip", "An owl"])
assert answer.object == "list" and [one.index for one in answer.data] == [0, 1], answer
assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0, answer.usage
for one in answer.data:
    assert abs(math.sqrt(sum(x * x for x in one.embedding)) - 1) < 1e-5

floats = client.embeddings.create(model="default", input="A fox named Pip", encoding_format="float")
assert floats.data[0].embedding == answer.data[0].embedding, "both encodings are the same numbers"

short = client.embeddings.create(model="default", input="An owl", dimensions=8)
assert len(short.data[0].embedding) == 8 < len(answer.data[0].embedding)

# Token ids, and lists of them, as LangChain sends.
tokens = client.post("/tokenize", body={"prompt": "An owl"}, cast_to=object)["tokens"]
for given in (tokens, [tokens]):
    assert client.embeddings.create(model="default", input=given).data[0].embedding == answer.data[1].embedding


def refused(param, code="invalid_value", **body):
    try:
        client.embeddings.create(**{"model": "storyteller", "input": "hi", **body})
    except openai.BadRequestError as error:
        assert (error.param, error.code) == (param, code), (error.param, error.code)
        return
    raise AssertionError(f"expected a refusal of {param}")


refused("input", input="")
refused("input", input=[])
refused("input", input=["a"] * 2049)
refused("dimensions", dimensions=10_000)
refused("encoding_format", encoding_format="int8")
refused(None, "context_length_exceeded", input=[5] * 5000)
print("openai package", openai.__version__, "ok")
