"""Replicas of the real binary, load on whatever stands before them, and what must not happen to it."""

import asyncio
import itertools
import json
import os
import signal
import socket
import sys

import aiohttp

LONG = aiohttp.ClientTimeout(total=300)
# Of an answer: enough that replicas have more to do than the clients here, so that their loads differ.
TOKENS = 64


given = set()


def free_port():
    """Never the same one twice, which the system may name again as soon as it is free again."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port not in given:
            given.add(port)
            return port


async def until(what, condition, limit=120):
    """Polls a state that follows an event without an answer to wait for."""
    for _ in range(limit * 20):
        if await condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"never: {what}")


class Replica:
    def __init__(self, binary, *args):
        self.binary, self.args, self.port = binary, args, free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    async def start(self):
        environment = {**os.environ, "FOREBAY__STORE__URL": "memory"}
        self.process = await asyncio.create_subprocess_exec(
            self.binary, "serve", "--port", str(self.port), "--threads", "1", *self.args, env=environment,
            stdout=asyncio.subprocess.DEVNULL)
        await until(f"{self.url} is ready", self.is_ready)

    async def is_ready(self):
        return await answers(f"{self.url}/health/ready")

    async def stop(self):
        """As Kubernetes does."""
        self.process.send_signal(signal.SIGTERM)
        assert await self.process.wait() == 0, "a drained server ends well"

    async def kill(self):
        self.process.kill()
        await self.process.wait()

    async def metric(self, name):
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as answer:
            lines = [line for line in (await answer.text()).splitlines() if line.startswith(name)]
            return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


async def end(*processes):
    """Whatever became of them."""
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def answers(url):
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
            async with session.get(url) as answer:
                return answer.status == 200
    except aiohttp.ClientError:
        return False


class Load:
    """Clients that ask again and again, every other time for a stream."""

    def __init__(self, url, clients=8):
        self.url, self.clients, self.numbers = url, clients, itertools.count()
        self.done, self.refused, self.cut = 0, [], []
        # Streams that were queued, their head sent, when their replica was told to end: they hear so by an event.
        self.told = []
        self.ending = False

    async def __aenter__(self):
        self.session = aiohttp.ClientSession(timeout=LONG)
        self.tasks = [asyncio.create_task(self.client()) for _ in range(self.clients)]
        return self

    async def __aexit__(self, *error):
        self.ending = True
        await asyncio.gather(*self.tasks)
        await self.session.close()

    async def more(self, count):
        """Until so many more were answered."""
        wanted = self.done + count

        async def enough():
            return self.done >= wanted or self.refused

        await until(f"{count} more answers", enough)

    async def client(self):
        while not self.ending:
            number = next(self.numbers)
            await (self.stream if number % 2 else self.whole)(number)

    def body(self, number, stream):
        return {"model": "storyteller", "prompt": f"{number} foxes went to the river once upon a time", "max_tokens": TOKENS, "temperature": 0,
                "ignore_eos": True, "stream": stream}

    async def whole(self, number):
        try:
            async with self.session.post(f"{self.url}/v1/completions", json=self.body(number, False)) as answer:
                body = await answer.text()
                if answer.status != 200 or json.loads(body)["usage"]["completion_tokens"] != TOKENS:
                    return self.refused.append((number, answer.status, body))
        except (aiohttp.ClientError, ConnectionError) as error:
            # Not a byte of an answer had come.
            return self.refused.append((number, repr(error)))
        self.done += 1

    async def stream(self, number):
        begun = False
        try:
            async with self.session.post(f"{self.url}/v1/completions", json=self.body(number, True)) as answer:
                if answer.status != 200:
                    return self.refused.append((number, answer.status, await answer.text()))
                # Its head is the beginning of an answer, which nobody could take back.
                begun = True
                text = await answer.read()
        except (aiohttp.ClientError, ConnectionError) as error:
            return (self.cut if begun else self.refused).append((number, repr(error)))
        if text.startswith(b'data: {"error"') and b'"shutting_down"' in text:
            return self.told.append(number)
        if not text.endswith(b"data: [DONE]\n\n") or b'"error"' in text:
            return (self.cut if begun else self.refused).append((number, text[-200:]))
        self.done += 1


async def nothing(replica):
    pass


async def through_everything(url, replicas, settled, check, leave=nothing, back=nothing):
    """One replica dies, one is told to end, all are replaced, under load. `settled(replica, up)` waits until the proxy has
    noticed. Where the proxy can be asked to `leave` a replica alone first, a replacement is heard by nobody."""
    async with Load(url) as load:
        await load.more(20)
        check(load, "at rest", cut=False)
        victim = replicas[0]
        await victim.kill()
        await load.more(30)
        check(load, "one was killed", cut=True)
        await victim.start()
        await settled(victim, True)
        cut = len(load.cut)
        draining = replicas[1]
        await draining.stop()
        await load.more(20)
        assert len(load.cut) == cut, f"a drain cut {load.cut[cut:]}"
        check(load, "one drained", cut=True)
        await draining.start()
        await settled(draining, True)
        told = len(load.told)
        for replica in replicas:
            await leave(replica)
            await replica.stop()
            await replica.start()
            await back(replica)
            await settled(replica, True)
            await load.more(10)
        assert leave is nothing or len(load.told) == told, f"heard of a replacement: {load.told[told:]}"
        assert len(load.cut) == cut, f"a rollout cut {load.cut[cut:]}"
        check(load, "all were replaced", cut=True)
    served = [await replica.metric("forebay_sequences_finished_total") for replica in replicas]
    assert all(count > 0 for count in served), f"every replica serves again: {served}"
    print(f"{load.done} answered, {len(load.cut)} cut by the kill, {len(load.told)} told of an end, spread {served}")


def check(load, when, cut):
    assert not load.refused, f"{when}: failed although not begun: {load.refused[:5]}"
    assert cut or not load.cut, f"{when}: cut: {load.cut[:5]}"


def run(main):
    asyncio.run(main(*sys.argv[1:]))
