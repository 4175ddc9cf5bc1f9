#!/usr/bin/env python3
"""How long /metrics and /health/* take while every processor computes.

    benches/scrape.py --forebay target/release/forebay [--seconds 30] [--goal-ms 50]

Starts the server with its embedded model, keeps it busy with streams from one process, and asks from others what routers and
probes ask, each every 50 ms over a connection of its own. Prints p50, p99 and the longest, idle and busy; ends with 1 where a
p99 is beyond the goal.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time

PATHS = ["/metrics", "/health/live", "/health/ready", "/metrics/json"]
TICK_S = 0.05


def start(binary):
    """The process, and its port."""
    environment = dict(os.environ, FOREBAY__STORE__URL="memory")
    command = [binary, "serve", "--port", "0", "--log-format", "json"]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    for line in server.stdout:
        fields = json.loads(line).get("fields", {})
        if fields.get("event") == "listening":
            threading.Thread(target=server.stdout.read, daemon=True).start()
            return server, int(fields["url"].rsplit(":", 1)[1])
    sys.exit("the server did not start")


def load(port, streams, stop):
    """Keeps `streams` completions under way."""

    def stream(number):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        turn = 0
        while not stop.is_set():
            turn += 1
            body = {
                "prompt": f"{number} {turn} " + "Once upon a time there was a little dog. " * 8,
                "max_tokens": 64,
                "ignore_eos": True,
                "stream": True,
            }
            try:
                connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                connection.close()

    threads = [threading.Thread(target=stream, args=(number,)) for number in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def probe(port, path, seconds, results):
    """Asks every tick; a tick that comes while an answer is awaited counts from when it was due."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    took, size = [], 0
    due = time.perf_counter()
    end = due + seconds
    while due < end:
        time.sleep(max(0.0, due - time.perf_counter()))
        connection.request("GET", path)
        answer = connection.getresponse()
        size = len(answer.read())
        if answer.status != 200:
            sys.exit(f"{path} answered {answer.status}")
        took.append((time.perf_counter() - due) * 1e3)
        due += TICK_S
    results.put((path, sorted(took), size))


def measure(port, seconds):
    results = multiprocessing.Queue()
    probes = [multiprocessing.Process(target=probe, args=(port, path, seconds, results)) for path in PATHS]
    for one in probes:
        one.start()
    told = dict((path, (took, size)) for path, took, size in (results.get() for _ in probes))
    for one in probes:
        one.join()
    return told


def rank(took, part):
    return took[min(len(took) - 1, int(len(took) * part))]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--forebay", default="target/release/forebay")
    arguments.add_argument("--seconds", type=float, default=30)
    arguments.add_argument("--streams", type=int, default=32)
    arguments.add_argument("--goal-ms", type=float, default=50)
    given = arguments.parse_args()
    server, port = start(given.forebay)
    try:
        idle = measure(port, min(given.seconds, 5))
        stop = multiprocessing.Event()
        loader = multiprocessing.Process(target=load, args=(port, given.streams, stop))
        loader.start()
        time.sleep(2)
        before = open("/proc/stat").readline().split()[1:] if os.path.exists("/proc/stat") else None
        busy = measure(port, given.seconds)
        share = None
        if before:
            after = open("/proc/stat").readline().split()[1:]
            spent = [int(b) - int(a) for a, b in zip(before, after)]
            share = 1 - spent[3] / max(1, sum(spent))
        stop.set()
        loader.join()
    finally:
        server.terminate()
        server.wait()
    if share is not None:
        print(f"{os.cpu_count()} processors, {share:.0%} busy, {given.streams} streams\n")
    print("| path | bytes | idle p50 | idle p99 | busy p50 | busy p99 | longest |\n|---|---|---|---|---|---|---|")
    beyond = []
    for path in PATHS:
        (quiet, _), (loud, size) = idle[path], busy[path]
        figures = [rank(quiet, 0.5), rank(quiet, 0.99), rank(loud, 0.5), rank(loud, 0.99), loud[-1]]
        print(f"| `{path}` | {size} | " + " | ".join(f"{figure:.1f} ms" for figure in figures) + " |")
        if rank(loud, 0.99) > given.goal_ms:
            beyond.append(path)
    if beyond:
        sys.exit(f"p99 beyond {given.goal_ms:g} ms: {', '.join(beyond)}")


if __name__ == "__main__":
    main()
