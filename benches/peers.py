"""Forebay beside llama.cpp on this machine: `make bench-peers LLAMA_BENCH=… LLAMA_SERVER=… FILES="a.gguf b.gguf"`.

Every case runs in turns, ours and theirs, several rounds; each side's best counts, and the ratio is of those two. Writes
docs/performance.md. Needs only the standard library. `llama-batched-bench` is looked for beside `llama-bench`.
"""

import argparse, concurrent.futures, datetime, http.client, json, os, pathlib, platform, re, socket, statistics, subprocess, sys, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MUST = {  # what issue 5 asks for, as ratios to llama.cpp
    "Q4_K_M": {"prefill": 2.4, "decode 1": 1.4, "decode 8": 3, "decode 32": 3, "http": 2.5, "ttft": 0.5},
    "Q8_0": {"prefill": 3.5, "decode 1": 1.4, "decode 8": 3, "decode 32": 3.2},
    "BF16": {"prefill": 1.5, "decode 1": 1.1},
}
CLIENTS, PROMPT, OUTPUT = 16, 100, 64


def run(command, **environment):
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def ours(binary, model, cases):
    text = run([binary], FOREBAY_BENCH_MODEL=str(model), FOREBAY_BENCH_REPETITIONS="1", FOREBAY_BENCH_CASES=",".join(cases))
    for line in text.splitlines():
        row = json.loads(line)
        yield ("prefill" if row["case"] == "prefill" else f"decode {row['sequences']}"), row["tokens_per_second"]


def theirs(bench, model, threads, cases):
    rows = json.loads(run([bench, "-m", model, "-t", threads, "-p", "512", "-n", "64", "-r", "1", "-o", "json"]))
    yield "prefill", next(row["avg_ts"] for row in rows if row["n_prompt"])
    yield "decode 1", next(row["avg_ts"] for row in rows if row["n_gen"])
    batched = pathlib.Path(bench).with_name("llama-batched-bench")
    if batched.exists() and "decode8" in cases:
        text = run([batched, "-m", model, "-t", threads, "-tb", threads, "-c", "8192", "-npp", "128", "-ntg", "64", "-npl", "8,32"])
        for row in re.findall(r"^\|\s*128\s*\|(.*)$", text, re.M):
            cells = [cell.strip() for cell in row.split("|")]
            yield f"decode {cells[1]}", float(cells[6])


class Server:
    """A server on a free port, until it is left."""

    def __init__(self, command):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(command + ["--port", str(self.port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env={**os.environ, "FOREBAY__STORE__URL": "memory"})

    def __enter__(self):
        for _ in range(600):
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return self
            except OSError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.process.kill()
        sys.exit("a server did not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def client(port, seed):
    """One streamed completion: tokens received, time to the first."""
    prompt = [1000 + (seed * 7919 + i * 31) % 50000 for i in range(PROMPT)]
    body = json.dumps({"prompt": prompt, "max_tokens": OUTPUT, "temperature": 0, "stream": True, "ignore_eos": True, "cache_prompt": False})
    start, first, tokens = time.monotonic(), None, 0
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"{response.status}: {response.read()[:300]}")
    for line in response:
        if line.startswith(b"data: {"):
            choices = json.loads(line[6:]).get("choices") or [{}]
            # A frame may hold several tokens or none; every request makes OUTPUT of them.
            first = first or (time.monotonic() - start if choices[0].get("text") is not None else None)
            tokens = OUTPUT
    return tokens, first or time.monotonic() - start


def load(command):
    with Server(command) as server:
        client(server.port, 999)
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            answers = list(clients.map(lambda seed: client(server.port, seed), range(2 * CLIENTS)))
        seconds = time.monotonic() - start
    return sum(tokens for tokens, _ in answers) / seconds, statistics.median(first for _, first in answers) * 1000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True, help="our built benches/model")
    parser.add_argument("--forebay", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", default=str(os.cpu_count()))
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    bench, server = os.environ.get("LLAMA_BENCH"), os.environ.get("LLAMA_SERVER")
    if not bench:
        sys.exit("set LLAMA_BENCH to llama.cpp's llama-bench (and LLAMA_SERVER to its llama-server)")
    rows = []
    for file in options.files:
        kind = next((kind for kind in MUST if kind.lower() in file.lower()), "Q4_K_M")
        cases = ["prefill", "decode1"] + (["decode8", "decode32"] if kind != "BF16" else [])
        best = {"ours": {}, "theirs": {}}
        for turn in range(options.rounds):
            for side, results in (("ours", ours(options.bench, file, cases)), ("theirs", theirs(bench, file, options.threads, cases))):
                for case, speed in results:
                    best[side][case] = max(best[side].get(case, 0), speed)
            print(f"{kind}, round {turn + 1}: {best}", flush=True)
        rows += [(kind, case, best["ours"][case], best["theirs"].get(case), MUST[kind].get(case)) for case in best["ours"]]
        if server and kind == "Q4_K_M":
            sides = {
                "ours": [options.forebay, "serve", "--model", file],
                "theirs": [server, "-m", file, "-t", options.threads, "-np", str(CLIENTS), "-c", "4096", "--host", "127.0.0.1"],
            }
            turns = [{side: load(command) for side, command in sides.items()} for _ in range(options.rounds)]
            results = {side: [turn[side] for turn in turns] for side in sides}
            print(results, flush=True)
            speed = {side: max(speed for speed, _ in runs) for side, runs in results.items()}
            ttft = {side: min(first for _, first in runs) for side, runs in results.items()}
            rows.append((kind, f"HTTP, {CLIENTS} clients, {PROMPT}+{OUTPUT} tokens: output", speed["ours"], speed["theirs"], MUST[kind]["http"]))
            rows.append((kind, "the same: TTFT p50, ms (less is better)", ttft["ours"], ttft["theirs"], -MUST[kind]["ttft"]))
    write(rows, options)


def write(rows, options):
    version = run([options.forebay, "--version"]).strip()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    built = subprocess.run([os.environ["LLAMA_BENCH"], "--version"], capture_output=True, text=True)
    peer = next(iter(re.findall(r"version: .*", built.stdout + built.stderr)), "llama.cpp")
    processor = next(iter(re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())), platform.processor())
    lines = []
    for kind, case, mine, other, must in rows:
        ratio = mine / other if other else None
        held = "" if must is None or ratio is None else ("yes" if (ratio >= must if must > 0 else ratio <= -must) else "no")
        goal = "" if must is None else (f"≥ {must}" if must > 0 else f"≤ {-must}")
        lines.append(f"| {kind} {case} | {mine:,.0f} | {other or 0:,.0f} | {ratio or 0:.2f} | {goal} | {held} |")
    table = "\n".join(lines)
    begin, end = "<!-- measured: begin -->", "<!-- measured: end -->"
    page = ROOT / "docs" / "performance.md"
    text = page.read_text()
    measured = f"""{begin}
{version} ({commit}) beside {peer}, {datetime.date.today()}, {processor}, {options.threads} threads, the best of {options.rounds} rounds
in turns, tokens per second:

| case | Forebay | llama.cpp | ratio | asked for | held |
|---|---|---|---|---|---|
{table}
{end}"""
    page.write_text(text[: text.index(begin)] + measured + text[text.index(end) + len(end) :])
    print(table)


main()
