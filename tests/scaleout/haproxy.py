"""haproxy.py BINARY CONFIGURATION: the configuration that is shipped, over three replicas: one is killed, one drains, all are
replaced."""

import asyncio
import re
import tempfile
from pathlib import Path

from replicas import Replica, check, end, free_port, run, through_everything, until


def adapted(shipped, port, replicas, socket):
    """Only the addresses are others."""
    text, binds = re.subn(r"bind :8000", f"bind 127.0.0.1:{port}", shipped)
    text, sockets = re.subn(r"stats socket \S+", f"stats socket {socket}", text)
    servers = iter(replicas)
    text, count = re.subn(r"(server \w+) \S+:8080", lambda found: f"{found[1]} 127.0.0.1:{next(servers).port}", text)
    assert (binds, sockets, count) == (1, 1, len(replicas)), "the shipped configuration is not as expected"
    return text


async def asked(socket, command):
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(command.encode() + b"\n")
    return (await reader.read()).decode()


async def main(binary, configuration):
    replicas = [Replica(binary) for _ in range(3)]
    await asyncio.gather(*(replica.start() for replica in replicas))
    with tempfile.TemporaryDirectory() as folder:
        port, socket, file = free_port(), f"{folder}/stats.sock", Path(folder) / "haproxy.cfg"
        file.write_text(adapted(Path(configuration).read_text(), port, replicas, socket))
        haproxy = await asyncio.create_subprocess_exec("haproxy", "-db", "-f", str(file), stdout=asyncio.subprocess.DEVNULL)

        def server(replica):
            return "abc"[replicas.index(replica)]

        async def seen(replica):
            lines = (await asked(socket, "show stat")).splitlines()
            names = lines[0].lstrip("# ").split(",")
            rows = [dict(zip(names, line.split(","))) for line in lines[1:] if line]
            return next(row for row in rows if (row["pxname"], row["svname"]) == ("forebay", server(replica)))

        async def settled(replica, up):
            async def noticed():
                return (await seen(replica))["status"].startswith("UP") == up

            await until(f"haproxy sees {server(replica)} {'up' if up else 'down'}", noticed)

        async def leave(replica):
            assert not (await asked(socket, f"set server forebay/{server(replica)} state drain")).strip()

            async def left():
                return (await seen(replica))["scur"] == "0"

            await until("what it had is answered", left)

        async def back(replica):
            assert not (await asked(socket, f"set server forebay/{server(replica)} state ready")).strip()

        try:

            async def listens():
                return Path(socket).exists()

            await until("haproxy runs", listens)
            for replica in replicas:
                await settled(replica, True)
            await through_everything(f"http://127.0.0.1:{port}", replicas, settled, check, leave, back)
        finally:
            await end(haproxy, *(replica.process for replica in replicas))


run(main)
