"""Drives a running server with the official anthropic package. Usage: anthropic_messages.py BASE_URL"""

import sys

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="unused", max_retries=0)
ask = dict(
    model="storyteller", max_tokens=40, extra_body={"temperature": 0},  # which this version has no argument for
    messages=[{"role": "user", "content": "Tell me a story about a fox named Pip."}],
)

whole = client.messages.create(**ask)
assert whole.type == "message" and whole.role == "assistant" and whole.id.startswith("msg_"), whole
assert whole.stop_reason in ("end_turn", "max_tokens") and whole.content[0].type == "text", whole
counted = client.messages.count_tokens(model="storyteller", messages=ask["messages"])
read = whole.usage.input_tokens + whole.usage.cache_read_input_tokens
assert counted.input_tokens == read, (counted, whole.usage)

with client.messages.stream(**ask) as stream:
    text = "".join(stream.text_stream)
    final = stream.get_final_message()
assert text == whole.content[0].text == final.content[0].text
assert final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens

# System, blocks, an answer that is gone on with, stop sequences.
prompted = client.messages.create(
    model="default", max_tokens=8, system=[{"type": "text", "text": "You tell stories."}],
    messages=[{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
)
assert prompted.content[0].text
word = whole.content[0].text.split()[5]
cut = client.messages.create(**ask, stop_sequences=[word])
assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", word), cut
assert cut.content[0].text == whole.content[0].text.split(word)[0]


# Errors are the package's own exceptions, with Anthropic's types.
def refused(kind, name, **body):
    try:
        client.messages.create(**{**ask, **body})
    except kind as error:
        assert error.body["type"] == "error" and error.body["error"]["type"] == name, error.body
        assert error.request_id or error.response.headers["x-request-id"]
        return
    raise AssertionError(f"expected {kind.__name__}")


refused(anthropic.NotFoundError, "not_found_error", model="claude-17")
refused(anthropic.BadRequestError, "invalid_request_error", extra_body={"temperature": 9})
refused(anthropic.BadRequestError, "invalid_request_error", messages=[])
image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
refused(anthropic.BadRequestError, "invalid_request_error", messages=[{"role": "user", "content": [image]}])
print("anthropic package", anthropic.__version__, "ok")
