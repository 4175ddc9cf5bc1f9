"""Files and batches with the official openai package. Usage: openai_batches.py BASE_URL"""

import io
import json
import sys
import time

import openai

client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="unused", max_retries=0)


def line(name, **body):
    body = {"model": "default", "messages": [{"role": "user", "content": "A fox named Pip."}], "max_tokens": 6, **body}
    return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}


def jsonl(lines):
    return io.BytesIO("".join(json.dumps(entry) + "\n" for entry in lines).encode())


def until_over(batch):
    for _ in range(6000):
        batch = client.batches.retrieve(batch.id)
        if batch.status in ("completed", "failed", "expired", "cancelled"):
            return batch
        time.sleep(0.01)
    raise AssertionError(batch)


# A whole batch, with one line that is refused.
lines = [line(f"request-{n}", seed=n) for n in range(5)] + [line("bad", temperature=9)]
file = client.files.create(file=("requests.jsonl", jsonl(lines)), purpose="batch")
assert file.object == "file" and file.purpose == "batch" and file.filename == "requests.jsonl", file
assert client.files.content(file.id).read() == jsonl(lines).read()
batch = client.batches.create(
    input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"job": "nightly"}
)
assert batch.status in ("validating", "in_progress") and batch.metadata == {"job": "nightly"}, batch
done = until_over(batch)
counts = done.request_counts
assert done.status == "completed" and (counts.total, counts.completed, counts.failed) == (6, 5, 1), done
answers = [json.loads(text) for text in client.files.content(done.output_file_id).text.splitlines()]
assert [answer["custom_id"] for answer in answers] == [f"request-{n}" for n in range(5)], answers
for answer in answers:
    assert answer["id"].startswith("batch_req_") and answer["error"] is None, answer
    response = answer["response"]
    assert response["status_code"] == 200 and response["request_id"], response
    chat = openai.types.chat.ChatCompletion.model_validate(response["body"])
    assert chat.choices[0].message.role == "assistant" and chat.usage.completion_tokens <= 6, chat
(error,) = [json.loads(text) for text in client.files.content(done.error_file_id).text.splitlines()]
assert error["custom_id"] == "bad" and error["response"]["status_code"] == 400, error
assert error["response"]["body"]["error"]["param"] == "temperature", error
assert client.files.retrieve(done.output_file_id).purpose == "batch_output"

# Lists follow their cursors.
second = client.files.create(
    file=jsonl([line("a")]), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
)
assert second.expires_at == second.created_at + 3600, second
listed = [entry.id for entry in client.files.list(purpose="batch", limit=1)]
assert sorted(listed) == sorted([file.id, second.id]), listed
other = client.batches.create(
    input_file_id=second.id, endpoint="/v1/chat/completions", completion_window="1h",
    output_expires_after={"anchor": "created_at", "seconds": 7200},
)
assert until_over(other).status == "completed"
assert {entry.id for entry in client.batches.list(limit=1)} == {batch.id, other.id}

# A batch whose lines ask another route fails, and says which.
wrong = until_over(
    client.batches.create(input_file_id=second.id, endpoint="/v1/completions", completion_window="24h")
)
assert wrong.status == "failed" and wrong.errors.data[0].line == 1, wrong
assert wrong.errors.data[0].code == "mismatched_url", wrong

# Cancelled while it runs: what is answered is kept.
long = client.files.create(file=jsonl([line(f"l{n}", max_tokens=900, ignore_eos=True) for n in range(200)]), purpose="batch")
running = client.batches.create(input_file_id=long.id, endpoint="/v1/chat/completions", completion_window="24h")
assert client.batches.cancel(running.id).status in ("cancelling", "cancelled")
over = until_over(running)
assert over.status == "cancelled" and over.cancelled_at, over
try:
    client.batches.cancel(batch.id)
    raise AssertionError("a completed batch cannot be cancelled")
except openai.BadRequestError as error:
    assert error.param == "batch_id", error

# Deleted is gone; mistakes are the package's own exceptions.
assert client.files.delete(file.id).deleted
for call in (client.files.retrieve, client.files.content, client.files.delete):
    try:
        call(file.id)
        raise AssertionError("the file is gone")
    except openai.NotFoundError as error:
        assert error.code == "not_found", error
try:
    client.files.create(file=jsonl([line("a"), line("a")]), purpose="batch")
    raise AssertionError("two lines have one custom_id")
except openai.BadRequestError as error:
    assert error.param == "file" and "line 2" in error.message, error
print("openai package", openai.__version__, "ok")
