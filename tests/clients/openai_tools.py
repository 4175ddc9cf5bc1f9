"""Tools with the official openai package. Usage: openai_tools.py BASE_URL

The embedded model calls nothing by itself; what is checked is that requests with tools, calls and results pass, that answers
parse, whole and streamed, and that mistakes are told.
"""

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
    }
]
messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
ask = dict(model="storyteller", messages=messages, tools=tools, temperature=0, max_completion_tokens=24)


def check(message, finish_reason):
    """Words or calls; both have their types."""
    if message.tool_calls:
        assert finish_reason in ("tool_calls", "length")
        assert all(call.id and call.function.name == "get_weather" for call in message.tool_calls)
    else:
        assert message.content and finish_reason in ("stop", "length"), message


whole = client.chat.completions.create(tool_choice="auto", **ask)
check(whole.choices[0].message, whole.choices[0].finish_reason)
assert whole.usage.completion_tokens_details.reasoning_tokens == 0
told = whole.usage.prompt_tokens
with client.chat.completions.stream(tool_choice="auto", **ask) as stream:
    for _ in stream:
        pass
    final = stream.get_final_completion()
check(final.choices[0].message, final.choices[0].finish_reason)
assert final.choices[0].message.content == whole.choices[0].message.content

# Tools cost tokens of the prompt; with "none" the model is not told of them.
silent = client.chat.completions.create(tool_choice="none", **ask)
assert silent.usage.prompt_tokens < told, (silent.usage, told)
one = client.chat.completions.create(parallel_tool_calls=False, **ask)
assert one.choices[0].message.content == whole.choices[0].message.content

# A call and its result in the history, as the package's own types and as dictionaries.
call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"place": "Oslo"}'}}
history = messages + [
    {"role": "assistant", "content": None, "tool_calls": [call]},
    {"role": "tool", "tool_call_id": "call_1", "content": '{"celsius": 4}'},
]
after = client.chat.completions.create(**{**ask, "messages": history})
assert after.usage.prompt_tokens > told
again = client.chat.completions.create(**{**ask, "messages": history + [after.choices[0].message, messages[0]]})
assert again.usage.prompt_tokens > after.usage.prompt_tokens


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
