"""litellm as people put it in front of OpenAI-compatible servers. Usage: litellm_chat.py BASE_URL"""

import os
import sys

# It would fetch a table of prices when it is imported.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm

ours = dict(model="openai/storyteller", api_base=f"{sys.argv[1]}/v1", api_key="unused", num_retries=0)
messages = [{"role": "user", "content": "Tell me a story about a fox named Pip."}]

answer = litellm.completion(messages=messages, temperature=0, max_tokens=20, **ours)
assert answer.choices[0].message.content and answer.usage.completion_tokens <= 20, answer

stream = litellm.completion(
    messages=messages, temperature=0, max_tokens=20, stream=True, stream_options={"include_usage": True}, **ours
)
chunks = list(stream)
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text == answer.choices[0].message.content
assert any(getattr(chunk, "usage", None) for chunk in chunks)

text = litellm.text_completion(
    model="text-completion-openai/storyteller", prompt="Once upon a time", max_tokens=8, temperature=0,
    api_base=ours["api_base"], api_key="unused",
)
assert text.choices[0].text

try:
    litellm.completion(messages=messages, temperature=9, **ours)
except litellm.BadRequestError as error:
    assert "temperature" in str(error), error
else:
    raise AssertionError("a temperature of 9 is refused")
print("litellm ok")
