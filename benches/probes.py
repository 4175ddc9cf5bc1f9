"""probes.py BINARY: how long /metrics and the probes take while every core computes. The goal: p99 under 50 ms.

Starts the server with the embedded model, keeps 64 long completions running, and asks each path again and again over one
connection, every 50 ms, as llm-d Router scrapes. Nothing but Python is needed.
"""

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time

PATHS = ["/metrics", "/health", "/health/ready", "/health/live"]
ROUNDS, CLIENTS, TICK = 400, 64, 0.05


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(connection, method, path, body=None):
    connection.request(method, path, body and json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def load(port, stop):
    body = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True}
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while not stop.is_set():
        ask(connection, "POST", "/v1/completions", body)


def percentile(times, part):
    return sorted(times)[min(int(len(times) * part), len(times) - 1)] * 1e3


def main(binary):
    port, stop = free_port(), threading.Event()
    environment = {**os.environ, "FOREBAY__STORE__URL": "memory", "FOREBAY__LOGGING__LEVEL": "warn"}
    server = subprocess.Popen([binary, "serve", "--port", str(port)], env=environment)
    try:
        while True:
            try:
                if ask(http.client.HTTPConnection("127.0.0.1", port), "GET", "/health/ready") == 200:
                    break
            except ConnectionError:
                time.sleep(0.05)
        clients = [threading.Thread(target=load, args=(port, stop), daemon=True) for _ in range(CLIENTS)]
        [client.start() for client in clients]
        time.sleep(2)
        print("| path | p50 ms | p99 ms | longest ms |\n|---|---|---|---|")
        for path in PATHS:
            connection, times = http.client.HTTPConnection("127.0.0.1", port), []
            for _ in range(ROUNDS):
                began = time.perf_counter()
                assert ask(connection, "GET", path) == 200, path
                times.append(time.perf_counter() - began)
                time.sleep(TICK)
            print(f"| `{path}` | {percentile(times, 0.5):.2f} | {percentile(times, 0.99):.2f} | {max(times) * 1e3:.2f} |")
        stop.set()
    finally:
        server.kill()
        server.wait()


main(sys.argv[1])
