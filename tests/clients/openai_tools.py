"""Tools with the official openai package, against a model that calls them. Usage: openai_tools.py BASE_URL"""

import json
import sys

import openai

client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="unused", max_retries=0)
tools = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a place.",
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}},
                "required": ["place"],
            },
        },
    },
    {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}},
]
messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
ask = dict(model="default", messages=messages, tools=tools, temperature=0, max_completion_tokens=60)


def check(choice):
    assert choice.finish_reason == "tool_calls" and choice.message.content == "Look:", choice
    assert choice.message.reasoning_content == "Oslo? Yes.", choice
    weather, time = choice.message.tool_calls
    assert (weather.type, weather.function.name, time.function.name) == ("function", "get_weather", "get_time")
    assert json.loads(weather.function.arguments) == {"place": "Oslo", "days": [1, {}]}
    assert json.loads(time.function.arguments) == {}
    assert weather.id and time.id and weather.id != time.id


whole = client.chat.completions.create(tool_choice="auto", **ask)
check(whole.choices[0])
assert whole.usage.completion_tokens_details.reasoning_tokens == 7
told = whole.usage.prompt_tokens

# Streamed: a call's first chunk has its id and name, all chunks of a call share an index.
calls, content, thoughts, reason = {}, "", "", None
for chunk in client.chat.completions.create(stream=True, **ask):
    delta = chunk.choices[0].delta
    content += delta.content or ""
    thoughts += getattr(delta, "reasoning_content", None) or ""
    reason = chunk.choices[0].finish_reason or reason
    for part in delta.tool_calls or []:
        if part.id:
            calls[part.index] = [part.function.name, part.function.arguments]
        else:
            calls[part.index][1] += part.function.arguments
message = whole.choices[0].message
assert (content, thoughts, reason) == (message.content, message.reasoning_content, "tool_calls")
assert [calls[index] for index in sorted(calls)] == [
    [call.function.name, call.function.arguments] for call in message.tool_calls
], calls
# And as the package's own accumulator has it.
with client.chat.completions.stream(**ask) as stream:
    for _ in stream:
        pass
    final = stream.get_final_completion().choices[0]
assert [call.function.arguments for call in final.message.tool_calls] == [calls[0][1], calls[1][1]]

# Tools cost tokens of the prompt; with "none" the model is not told of them.
silent = client.chat.completions.create(tool_choice="none", **ask)
assert silent.usage.prompt_tokens < told, (silent.usage, told)
assert not silent.choices[0].message.tool_calls and silent.choices[0].finish_reason == "stop"
one = client.chat.completions.create(parallel_tool_calls=False, **ask)
assert len(one.choices[0].message.tool_calls) == 1

# The answer goes back as it came, with the results.
results = [{"role": "tool", "tool_call_id": call.id, "content": "4 C"} for call in message.tool_calls]
after = client.chat.completions.create(**{**ask, "messages": messages + [message] + results})
check(after.choices[0])


def refused(param, **body):
    try:
        client.chat.completions.create(**{**ask, **body})
    except openai.BadRequestError as error:
        assert error.param == param, error.param
        return
    raise AssertionError(f"expected an error about {param}")


refused("tools[0].function.name", tools=[{"type": "function", "function": {"name": "a b"}}])
refused("tool_choice", tool_choice={"type": "function", "function": {"name": "unknown"}})
refused("messages[1].tool_call_id", messages=[messages[0], {"role": "tool", "tool_call_id": "x", "content": "1"}])
print("openai package", openai.__version__, "ok")
