"""router.py BINARY VLLM_ROUTER: three replicas behind vllm-router, cache-aware: what begins alike goes where it is cached, and
one replica is killed, one drains, all are replaced. Balanced by load as soon as load differs, so that all are in use."""

import asyncio
import tempfile

import aiohttp

from replicas import LONG, Replica, answers, check, end, free_port, run, through_everything, until
from router_ask import ask

STORY = "Tell me about the fox who lived by the river and was afraid of the bridge. " * 12


async def affinity(url):
    """The second of two requests that begin alike finds what the first computed, wherever that was."""
    async with aiohttp.ClientSession(timeout=LONG) as session:
        for n in range(6):
            text = f"{n} {STORY}"
            first = await ask(session, url, text)
            second = await ask(session, url, text + " What happened then?")
            assert first["prompt_tokens_details"]["cached_tokens"] < 64, first
            cached = second["prompt_tokens_details"]["cached_tokens"]
            assert cached >= first["prompt_tokens"] // 32 * 32 - 32 > 0, (first, second)
        print(f"of {second['prompt_tokens']} prompt tokens {cached} were cached")


async def main(binary, vllm_router):
    replicas = [Replica(binary) for _ in range(3)]
    await asyncio.gather(*(replica.start() for replica in replicas))
    port, url = free_port(), None
    with tempfile.TemporaryDirectory() as folder:
        router = await asyncio.create_subprocess_exec(
            vllm_router, "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()),
            "--policy", "cache_aware", "--balance-abs-threshold", "1", "--balance-rel-threshold", "1.0", "--worker-urls", *(replica.url for replica in replicas),
            "--health-check-interval-secs", "1", "--cb-timeout-duration-secs", "2", "--health-failure-threshold", "1", "--health-success-threshold", "1",
            "--log-dir", folder, "--log-level", "warning", stdout=asyncio.subprocess.DEVNULL)
        url = f"http://127.0.0.1:{port}"
        try:
            await until("the router serves", lambda: answers(f"{url}/v1/models"))
            await affinity(url)

            async def settled(replica, up):
                served = await replica.metric("forebay_sequences_finished_total")

                async def serves():
                    return await replica.metric("forebay_sequences_finished_total") > served

                await until(f"the router uses {replica.url}", serves)

            await through_everything(url, replicas, settled, check)
        finally:
            await end(router, *(replica.process for replica in replicas))


run(main)
