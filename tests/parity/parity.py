"""Compares our greedy tokens with llama.cpp's on the same GGUF files: `make parity [FILES="a.gguf b.gguf"]`.

Opt-in: it downloads and compiles llama.cpp (from the source distribution of llama-cpp-python, into `.parity/`, once) and
takes half an hour the first time. Without FILES it makes models of random weights with ../shared/tools/make_gguf.py.

For each prompt llama.cpp continues greedily for 32 tokens and says how far its best token was ahead of the second. We
continue the same prompt; where we go another way, we are put back on llama.cpp's way and go on, so that every step is
compared. Where its lead is more than 0.05 (in logits, which is the difference of logprobs) a different token is an error,
unless the same numbers widened to F32 say that ours is right: both engines round activations to 8 bits, and small
differences in the order of additions grow on models of random weights.
"""

import contextlib
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
import venv

VERSION = "0.3.36"  # of llama-cpp-python
BUILD_TOOLS = ["scikit-build-core==1.1.2", "cmake==4.4.4", "ninja==1.13.2", "numpy==2.4.6", "gguf==0.19.0",
               "typing_extensions==4.16.0"]
TARGETS = ["llama-server", "llama-quantize", "llama-bench", "llama-batched-bench"]
STEPS = 32
CLEAR_LEAD = 0.05
# The most exact that llama.cpp offers: a cache in F32, and no repacking (whose AMX kernels fault in virtual machines that
# show the instructions and forbid their state).
THEIR_FLAGS = "-c 512 -np 1 -t 2 -ctk f32 -ctv f32 -fa off --no-repack".split()
REPO = pathlib.Path(__file__).resolve().parents[2]
CACHE = REPO / ".parity"
# Where cargo puts what it builds in release mode.
BUILT = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPO / "target")) / "release"
MAKER = REPO.parent / "shared" / "tools" / "make_gguf.py"
# Shape, and the types that are quantised from its F16 file.
SHAPES = [("tinyq3", ["Q8_0", "Q4_K_M"]), ("tiny", ["Q8_0", "Q4_K_M"]), ("qwen3-0.6b", ["Q8_0", "Q4_K_M"])]


def run(*command, **options):
    print("$", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, **options)


def python():
    """The interpreter of an environment with the build tools."""
    environment = CACHE / "venv"
    ready = environment / "ready"
    if not ready.exists() or ready.read_text() != " ".join(BUILD_TOOLS):
        venv.create(environment, with_pip=True)
        run(environment / "bin/pip", "install", "--quiet", *BUILD_TOOLS)
        ready.write_text(" ".join(BUILD_TOOLS))
    return environment / "bin/python"


def llama(name):
    """A tool of llama.cpp, compiled if it has to be."""
    tool = CACHE / "build" / "bin" / name
    if tool.exists():
        return tool
    tools = python().parent
    archive = CACHE / f"llama_cpp_python-{VERSION}.tar.gz"
    if not archive.exists():
        run(tools / "pip", "download", "--no-deps", "--no-build-isolation", "--no-binary", "llama-cpp-python",
            "--dest", CACHE, f"llama-cpp-python=={VERSION}")
    source = CACHE / f"llama_cpp_python-{VERSION}"
    if not source.exists():
        with tarfile.open(archive) as packed:
            packed.extractall(CACHE, filter="data")
    options = ["CMAKE_BUILD_TYPE=Release", "LLAMA_CURL=OFF", "LLAMA_OPENSSL=OFF", "LLAMA_BUILD_TESTS=OFF",
               "LLAMA_BUILD_EXAMPLES=OFF", f"CMAKE_MAKE_PROGRAM={tools / 'ninja'}"]
    run(tools / "cmake", "-G", "Ninja", "-S", source / "vendor/llama.cpp", "-B", CACHE / "build",
        *(f"-D{option}" for option in options))
    run(tools / "ninja", "-C", CACHE / "build", *TARGETS)
    return tool


def models():
    """The default files, made if they have to be."""
    if not MAKER.exists():
        sys.exit("parity: skipped: there is no ../shared/tools/make_gguf.py; give files: make parity FILES=...")
    folder = CACHE / "models"
    folder.mkdir(exist_ok=True)
    files = []
    for shape, types in SHAPES:
        original = folder / f"{shape}-f16.gguf"
        if not original.exists():
            run(python(), MAKER, shape, original, "f16")
        files.append(original)
        for kind in types:
            quantised = folder / f"{shape}-{kind.lower()}.gguf"
            if not quantised.exists():
                run(llama("llama-quantize"), original, quantised, kind, stdout=subprocess.DEVNULL)
            files.append(quantised)
    return files


class Server:
    """A process that answers HTTP on a free loopback port."""

    def __init__(self, command, ready):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([str(part) for part in command] + ["--port", str(port)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env={**os.environ, "FOREBAY__STORE__URL": "memory"})
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url + ready).read()
                return
            except OSError:
                if self.process.poll() is not None:
                    sys.exit(f"parity: {command[0]} ended with {self.process.returncode}")
                time.sleep(0.5)
        sys.exit(f"parity: {command[0]} never answered")

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"content-type": "application/json"})
        return json.load(urllib.request.urlopen(request))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def theirs(server, prompt):
    """32 greedy steps: (token, its logprob, its lead over the second). One request each: of several tokens llama-server
    leaves out those that end within a character, and says nothing of their probability."""
    steps = []
    while len(steps) < STEPS:
        body = {"prompt": prompt + [token for token, _, _ in steps], "n_predict": 1, "temperature": 0, "n_probs": 5,
                "cache_prompt": True, "samplers": ["temperature"], "return_tokens": True}
        answer = server.post("/completion", body)
        if not answer["tokens"]:
            break  # an end token
        known = [step for step in answer.get("completion_probabilities", []) if step["id"] == answer["tokens"][0]]
        top = sorted((entry["logprob"] for step in known for entry in step["top_logprobs"]), reverse=True)
        steps.append((answer["tokens"][0], known[0]["logprob"] if known else None, top[0] - top[1] if known else 0.0))
    return steps


def ours(server, prompt, count):
    """Greedy steps: (token, its logprob)."""
    body = {"prompt": prompt, "max_tokens": count, "temperature": 0, "logprobs": 0, "return_token_ids": True,
            "ignore_eos": True}
    choice = server.post("/v1/completions", body)["choices"][0]
    return list(zip(choice["token_ids"], choice["logprobs"]["token_logprobs"]))


def compare(we, they, exact, prompt):
    """Facts of each step on llama.cpp's way: its lead, whether we agree, whether the exact model agrees with us where we
    do not, and how far the logprobs of its token are from ours (and from the exact ones)."""
    expected = theirs(they, prompt)
    way = [token for token, _, _ in expected]
    facts, at = [], 0
    while at < len(expected):
        for token, logprob in ours(we, prompt + way[:at], len(expected) - at):
            wanted, their_logprob, lead = expected[at]
            fact = {"lead": lead, "agrees": token == wanted}
            if token == wanted and their_logprob is not None:
                fact["apart"] = abs(logprob - their_logprob)
            if exact and (token != wanted or at == 0):
                true_token, true_logprob = ours(exact, prompt + way[:at], 1)[0]
                fact["with_us"] = true_token == token
                if true_token == token == wanted and their_logprob is not None:
                    fact["our_error"], fact["their_error"] = abs(logprob - true_logprob), abs(their_logprob - true_logprob)
            facts.append(fact)
            at += 1
            if token != wanted:
                break
    return facts


def widened(file):
    """The same numbers as F32, which both engines compute exactly; `None` where that would be huge."""
    if file.stat().st_size > 700 << 20 or "f16" in file.name or "f32" in file.name:
        return None
    wide = CACHE / "models" / f"{file.stem}-as-f32.gguf"
    wide.parent.mkdir(exist_ok=True)
    if not wide.exists():
        run(python(), pathlib.Path(__file__).with_name("widen.py"), file, wide)
    return wide


def prompts(vocabulary):
    """Token ids, the same in every run: short ones, and some beyond a block and beyond a chunk."""
    draw = random.Random(7)
    return [[draw.randrange(300, vocabulary) for _ in range(length)] for length in (1, 3, 8, 17, 33, 64, 130, 300)]


def main():
    CACHE.mkdir(exist_ok=True)
    files = [pathlib.Path(name) for name in sys.argv[1:]] or models()
    binary = pathlib.Path(os.environ.get("FOREBAY", BUILT / "forebay"))
    serve = lambda model: Server([binary, "serve", "--model", model, "--max-model-len", "512", "--kv-dtype", "f32"], "/health/ready")
    wide = {file: widened(file) for file in files}
    print(f"\n| file | steps | lead > {CLEAR_LEAD} | of those equal | the exact model is with us in the others "
          "| equal of all | mean Δlogprob |")
    print("|---|---|---|---|---|---|---|")
    failed = False
    for file in files:
        with contextlib.ExitStack() as servers:
            we = servers.enter_context(serve(file))
            they = servers.enter_context(Server([llama("llama-server"), "-m", file, *THEIR_FLAGS], "/health"))
            exact = servers.enter_context(serve(wide[file])) if wide[file] else None
            facts = [fact for prompt in prompts(30_000) for fact in compare(we, they, exact, prompt)]
        clear = [fact for fact in facts if fact["lead"] > CLEAR_LEAD]
        wrong = [fact for fact in clear if not fact["agrees"]]
        with_us = sum(fact.get("with_us", False) for fact in wrong)
        apart = [fact["apart"] for fact in facts if "apart" in fact]
        print(f"| {file.name} | {len(facts)} | {len(clear)} | {len(clear) - len(wrong)} | {with_us} of {len(wrong)} "
              f"| {sum(fact['agrees'] for fact in facts)} | {sum(apart) / len(apart):.5f} |", flush=True)
        if wrong:
            failed |= with_us < len(wrong)
            print(f"  the largest lead that was lost: {max(fact['lead'] for fact in wrong):.3f}")
    sys.exit("parity: tokens differ where llama.cpp was sure and the exact model agrees with it" if failed else 0)


if __name__ == "__main__":
    main()
