"""Calls and thoughts through the anthropic package, of a model that has them. Usage: anthropic_tools.py BASE_URL"""

import sys

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="unused", max_retries=0)
tools = [
    {"name": name, "description": "d", "input_schema": {"type": "object", "properties": {}}}
    for name in ("get_weather", "get_time")
]
ask = dict(
    model="parrot", max_tokens=100, tools=tools, extra_body={"temperature": 0},
    messages=[{"role": "user", "content": "Weather?"}],
)

whole = client.messages.create(**ask)
assert [block.type for block in whole.content] == ["thinking", "text", "tool_use", "tool_use"], whole.content
assert whole.stop_reason == "tool_use" and whole.content[0].thinking == "Oslo? Yes." and whole.content[1].text == "Look:"
calls = [(block.name, block.input) for block in whole.content if block.type == "tool_use"]
assert calls == [("get_weather", {"place": "Oslo", "days": [1, {}]}), ("get_time", {})], calls

with client.messages.stream(**ask) as stream:
    final = stream.get_final_message()
assert [(block.name, block.input) for block in final.content if block.type == "tool_use"] == calls
assert final.content[0].thinking == "Oslo? Yes."

results = [
    {"type": "tool_result", "tool_use_id": block.id, "content": "sun"} for block in whole.content if block.type == "tool_use"
]
more = [*ask["messages"], {"role": "assistant", "content": whole.content}, {"role": "user", "content": results}]
assert client.messages.create(**{**ask, "messages": more}).stop_reason == "tool_use"

one = client.messages.create(**ask, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
assert [block.type for block in one.content].count("tool_use") == 1
short = client.messages.create(**{**ask, "max_tokens": 50}, thinking={"type": "enabled", "budget_tokens": 2})
assert short.content[0].thinking == "Oslo", short.content
print("anthropic package", anthropic.__version__, "ok")
