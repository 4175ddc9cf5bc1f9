"""Calls in responses, against a model that makes them. Usage: openai_responses_tools.py BASE_URL"""

import json
import sys

import openai

client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="unused", max_retries=0)
tools = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}, "strict": False}
    for name in ("get_weather", "get_time")
]
ask = dict(model="parrot", input="Weather?", tools=tools, temperature=0)

whole = client.responses.create(**ask)
assert [item.type for item in whole.output] == ["reasoning", "message", "function_call", "function_call"], whole.output
assert whole.output[0].content[0].text == "Oslo? Yes." and whole.output_text == "Look:"
calls = [(item.name, json.loads(item.arguments)) for item in whole.output if item.type == "function_call"]
assert calls == [("get_weather", {"place": "Oslo", "days": [1, {}]}), ("get_time", {})], calls
assert whole.usage.output_tokens_details.reasoning_tokens == 7, whole.usage

with client.responses.stream(**ask) as stream:
    arguments = "".join(e.delta for e in stream if e.type == "response.function_call_arguments.delta" and e.output_index == 2)
    final = stream.get_final_response()
assert json.loads(arguments) == calls[0][1]
assert [item.type for item in final.output] == [item.type for item in whole.output]

# What was said goes back as it came, with the results.
results = [
    {"type": "function_call_output", "call_id": item.call_id, "output": "sun"}
    for item in whole.output if item.type == "function_call"
]
again = client.responses.create(**{**ask, "input": [{"role": "user", "content": "Weather?"}, *whole.output, *results]})
assert again.output_text == "Look:"
one = client.responses.create(**ask, parallel_tool_calls=False)
assert [item.type for item in one.output].count("function_call") == 1
print("openai package", openai.__version__, "ok")
