"""kv_aware.py BINARY VLLM_ROUTER: two replicas that tell over ZMQ what they hold, behind vllm-router, which sends requests where
their beginnings are: it credits prompt tokens to a replica only because of our events."""

import asyncio
import re
import tempfile

import aiohttp

from replicas import LONG, Replica, answers, end, free_port, run, until
from router_ask import ask

STORY = "Tell me about the fox who lived by the river and was afraid of the bridge. " * 12


async def main(binary, vllm_router):
    ports = [(free_port(), free_port()) for _ in range(2)]
    endpoints = [[f"tcp://127.0.0.1:{port}" for port in pair] for pair in ports]
    replicas = [
        Replica(binary, "--kv-events", events, "--kv-events-replay", replay, "--block-size", "16")
        for events, replay in endpoints
    ]
    await asyncio.gather(*(replica.start() for replica in replicas))
    port = free_port()
    sources = [f"{replica.url}={events}" for replica, (events, _) in zip(replicas, endpoints)]
    replays = [f"{replica.url}={replay}" for replica, (_, replay) in zip(replicas, endpoints)]
    with tempfile.TemporaryFile() as log:
        router = await asyncio.create_subprocess_exec(
            vllm_router, "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()),
            "--policy", "kv_aware", "--kv-event-block-size", "16", "--kv-event-model", "storyteller", "--log-level", "debug",
            "--worker-urls", *(replica.url for replica in replicas),
            *(word for source in sources for word in ("--kv-event-source", source)),
            *(word for source in replays for word in ("--kv-event-replay-source", source)), stdout=log, stderr=log)
        url = f"http://127.0.0.1:{port}"

        def credits():
            log.seek(0)
            plain = re.sub(rb"\x1b\[\d*m", b"", log.read())
            return [int(found) for found in re.findall(rb"credited_prefix_tokens=(\d+)", plain)]

        try:
            await until("the router serves", lambda: answers(f"{url}/v1/models"))
            async with aiohttp.ClientSession(timeout=LONG) as session:
                for n in range(4):
                    text = f"{n} {STORY}"
                    first = await ask(session, url, text)

                    async def credited():
                        before = len(credits())
                        usage = await ask(session, url, text)
                        new = credits()[before:]
                        return any(count >= first["prompt_tokens"] // 16 * 16 - 16 for count in new) and (
                            usage["prompt_tokens_details"]["cached_tokens"] > first["prompt_tokens"] // 2)

                    await until("the router credits what our events told", credited, limit=5)
            print(f"credited of {first['prompt_tokens']} prompt tokens: {credits()}")
        except BaseException:
            log.seek(0)
            print(log.read()[-6000:].decode(errors="replace"))
            raise
        finally:
            await end(router, *(replica.process for replica in replicas))


run(main)
