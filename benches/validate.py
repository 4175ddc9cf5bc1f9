#!/usr/bin/env python3
"""What `forebay simulate` predicts beside what `forebay bench` measures: writes the table of docs/simulator.md.

    validate.py --forebay target/release/forebay [--utilisation 0.7] [--seed 1] [--only sim|model] [--rounds 1]

Both see the same arrivals. The engine computes on all cores but one, which HTTP and the load generator need: what they would take
away from it is no part of the model. First against `--model sim`, whose steps cost what the simulator says they do, so that only the
loop, HTTP and the clocks differ; then against the embedded model, with the cost model that `forebay calibrate` fits to it.
Wants the machine for itself for some minutes; standard library only.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

SCENARIOS = ["steady_state", "long_tail"]
# The simulated model takes as many tokens per step as the simulator does.
SAME_STEPS = {"FOREBAY__WORKERS__MAX_BATCH_TOKENS": "8192", "FOREBAY__ENGINE__MAX_NUM_BATCHED_TOKENS": "8192"}
SHOWN = [
    ("p50 TTFT ms", "median_ttft_ms"),
    ("p99 TTFT ms", "p99_ttft_ms"),
    ("output tokens/s", "output_throughput"),
    ("mean TPOT ms", "mean_tpot_ms"),
]
ALLOWED = 0.2


class Server:
    def __init__(self, forebay, arguments, variables):
        environment = os.environ | variables | {"FOREBAY__STORE__URL": "memory"}
        command = [forebay, "serve", "--port", "0", "--log-format", "json", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        for line in self.process.stdout:
            found = re.search(r"listening on (http://[0-9.:]+)", line)
            if found:
                self.url = found.group(1)
                # A log that nobody reads fills its pipe, and whoever writes to it waits.
                threading.Thread(target=self.process.stdout.read, daemon=True).start()
                break
        else:
            sys.exit("the server did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def run(forebay, *arguments, variables=None):
    done = subprocess.run([forebay, *arguments], stdout=subprocess.PIPE, text=True, env=os.environ | (variables or {}))
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)} failed")
    return done.stdout


def compare(options, title, server, cost, variables):
    print(f"\n{title}\n")
    print("| scenario | factor | " + " | ".join(f"{name}: predicted, measured" for name, _ in SHOWN) + " |")
    print("|" + "---|" * (len(SHOWN) + 2))
    worst = 0.0
    for scenario in SCENARIOS:
        common = ["--scenario", scenario, "--seed", str(options.seed), "--json"]
        scaled = ["--load", "scaled", "--utilisation", str(options.utilisation), "--strategy", "fixed", *cost]
        predicted = json.loads(run(options.forebay, "simulate", *common, *scaled, variables=variables))["results"][0]
        factor = predicted["load"]["factor"]
        measured = json.loads(run(options.forebay, "bench", "--url", server.url, "--scale", str(factor), *common))
        cells = []
        for name, key in SHOWN:
            error = predicted[key] / measured[key] - 1
            if key != "mean_tpot_ms":
                worst = max(worst, abs(error))
            cells.append(f"{predicted[key]:.1f}, {measured[key]:.1f} ({error:+.1%})")
        lost = measured["failed"] + measured["refused"]
        note = f", {lost} of {lost + measured['completed']} lost" if lost else ""
        print(f"| `{scenario}`{note} | {factor:.4f} | " + " | ".join(cells) + " |", flush=True)
    verdict = "within" if worst <= ALLOWED else "NOT within"
    print(f"\nTTFT and throughput: {verdict} {ALLOWED:.0%} (worst {worst:.1%}).", flush=True)
    return worst <= ALLOWED


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--utilisation", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calibration", default="20", help="seconds")
    parser.add_argument("--only", choices=["sim", "model"])
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 2) - 1), help="of the engine")
    options = parser.parse_args()
    good = True
    if options.only != "model":
        with Server(options.forebay, ["--model", "sim", "--workers", "1", "--strategy", "fixed"], SAME_STEPS) as server:
            title = f"One simulated worker (`--model sim`), {options.utilisation:.0%} of its capacity"
            good &= compare(options, title, server, [], SAME_STEPS)
    if options.only != "sim":
        with tempfile.TemporaryDirectory() as folder, Server(
            options.forebay, ["--strategy", "fixed", "--threads", str(options.threads)], {}
        ) as server:
            cost = Path(folder) / "cost.yaml"
            run(options.forebay, "calibrate", "--url", server.url, "--duration", options.calibration, "--output", str(cost))
            print("\n" + cost.read_text())
            title = f"The embedded model, {options.threads} of {os.cpu_count()} cores computing, {options.utilisation:.0%} of its capacity"
            good &= compare(options, title, server, ["--cost", str(cost)], {})
    sys.exit(0 if good else 1)


main()
