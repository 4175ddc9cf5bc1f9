"""kv_events.py URL EVENTS REPLAY TOPIC: KV events as vLLM's own subscribers read them, with pyzmq and msgpack."""

import json
import struct
import sys
import urllib.request

import msgpack
import zmq

url, events, replay, topic = sys.argv[1:]
KEYS = {"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"}


def post(path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))


context = zmq.Context()
subscriber = context.socket(zmq.SUB)
subscriber.connect(events)
subscriber.setsockopt_string(zmq.SUBSCRIBE, topic)
subscriber.RCVTIMEO = 500

# Until the subscription has arrived, messages are for nobody: each chat is a new one.
for n in range(200):
    chat = {"messages": [{"role": "user", "content": f"{n} " + "foxes and rivers and bridges " * 12}], "max_tokens": 4}
    tokens = post("/v1/chat/completions/render", chat)["token_ids"]
    post("/v1/chat/completions", chat)
    try:
        frames = subscriber.recv_multipart()
        break
    except zmq.Again:
        continue
assert len(frames) == 3 and frames[0] == topic.encode(), frames
first = struct.unpack(">Q", frames[1])[0]
time, batch, rank = msgpack.unpackb(frames[2])
stored = batch[0]
assert isinstance(time, float) and rank == 0 and stored["type"] == "BlockStored" and set(stored) == KEYS, batch
assert stored["token_ids"] == tokens[: len(stored["token_ids"])] and stored["block_size"] == 16, (stored, tokens)
assert len(stored["block_hashes"]) * 16 == len(stored["token_ids"]) > 0

# Everything before it, by the replay of vLLM's example: a REQ socket cannot hear many answers, so its frames by hand.
asker = context.socket(zmq.DEALER)
asker.connect(replay)
asker.RCVTIMEO = 30_000
asker.send_multipart([b"", struct.pack(">Q", 0)])
numbers = []
while True:
    empty, number, payload = asker.recv_multipart()
    if struct.unpack(">q", number)[0] == -1:
        break
    numbers.append(struct.unpack(">Q", number)[0])
    if numbers[-1] == 0:
        assert msgpack.unpackb(payload)[1] == [{"type": "AllBlocksCleared"}]
    if numbers[-1] == first:
        assert payload == frames[2], "the same bytes again"
assert numbers == list(range(len(numbers))) and first in numbers, numbers
