"""Compares our greedy tokens with llama.cpp's on the same GGUF files: `make parity [FILES="a.gguf b.gguf"]`.

Opt-in: it downloads and compiles llama.cpp (from the source distribution of llama-cpp-python, into `.parity/`, once) and
takes half an hour the first time. Without FILES it makes models of random weights with ../shared/tools/make_gguf.py.

For each prompt llama.cpp continues greedily for 32 tokens and says how far its best token was ahead of the second. We
continue the same prompt; where we go another way, we are put back on llama.cpp's way and go on, so that every step is
compared. Where its lead is more than 0.05 (in logits, which is the difference of logprobs) a different token is an error.
"""

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
BUILD_TOOLS = ["scikit-build-core==1.1.2", "cmake==4.4.4", "ninja==1.13.2", "numpy==2.4.6", "gguf==0.19.0"]
TARGETS = ["llama-server", "llama-quantize", "llama-bench", "llama-batched-bench"]
STEPS = 32
CLEAR_LEAD = 0.05
REPO = pathlib.Path(__file__).resolve().parents[2]
CACHE = REPO / ".parity"
MAKER = REPO.parent / "shared" / "tools" / "make_gguf.py"
# Shape, and the types that are quantised from its F16 file.
SHAPES = [("tinyq3", ["Q8_0", "Q4_K_M"]), ("tiny", ["Q8_0", "Q4_K_M"]), ("qwen3-0.6b", ["Q8_0", "Q4_K_M"])]


def run(*command, **options):
    print("$", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, **options)


def python():
    """The interpreter of an environment with the build tools."""
    environment = CACHE / "venv"
    if not (environment / "ready").exists():
        venv.create(environment, with_pip=True)
        run(environment / "bin/pip", "install", "--quiet", *BUILD_TOOLS)
        (environment / "ready").touch()
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
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
    """32 greedy steps: (token, its logprob, its lead over the second)."""
    body = {"prompt": prompt, "n_predict": STEPS, "temperature": 0, "n_probs": 5, "ignore_eos": False,
            "cache_prompt": False, "samplers": ["temperature"], "return_tokens": True}
    steps = []
    for step in server.post("/completion", body)["completion_probabilities"]:
        top = sorted((entry["logprob"] for entry in step["top_logprobs"]), reverse=True)
        steps.append((step["id"], step["logprob"], top[0] - top[1]))
    return steps


def ours(server, prompt, count):
    """Greedy steps: (token, its logprob)."""
    body = {"prompt": prompt, "max_tokens": count, "temperature": 0, "logprobs": 0, "return_token_ids": True,
            "ignore_eos": True}
    choice = server.post("/v1/completions", body)["choices"][0]
    return list(zip(choice["token_ids"], choice["logprobs"]["token_logprobs"]))


def compare(we, they, prompt):
    """Facts of each step: whether the lead was clear, whether the tokens agree, how far the logprobs are apart."""
    expected = theirs(they, prompt)
    way = [token for token, _, _ in expected]
    facts, at = [], 0
    while at < len(expected):
        for token, logprob in ours(we, prompt + way[:at], len(expected) - at):
            wanted, their_logprob, lead = expected[at]
            agrees = token == wanted
            facts.append((lead > CLEAR_LEAD, agrees, abs(logprob - their_logprob) if agrees else None, lead))
            at += 1
            if not agrees:
                break
    return facts


def prompts(vocabulary):
    """Token ids, the same in every run: short ones, and some beyond a block and beyond a chunk."""
    draw = random.Random(7)
    return [[draw.randrange(300, vocabulary) for _ in range(length)] for length in (1, 3, 8, 17, 33, 64, 130, 300)]


def main():
    CACHE.mkdir(exist_ok=True)
    files = [pathlib.Path(name) for name in sys.argv[1:]] or models()
    binary = pathlib.Path(os.environ.get("FOREBAY", REPO / "target/release/forebay"))
    print(f"\n| file | steps | lead > {CLEAR_LEAD} | of those equal | equal of all | mean Δlogprob | largest |")
    print("|---|---|---|---|---|---|---|")
    failed = False
    for file in files:
        with Server([binary, "serve", "--model", file, "--max-model-len", "512"], "/health/ready") as we, \
                Server([llama("llama-server"), "-m", file, "-c", "512", "-np", "1", "-t", "2"], "/health") as they:
            facts = [fact for prompt in prompts(30_000) for fact in compare(we, they, prompt)]
        clear = [fact for fact in facts if fact[0]]
        wrong = [fact for fact in clear if not fact[1]]
        apart = [fact[2] for fact in facts if fact[2] is not None]
        agreed = sum(fact[1] for fact in facts)
        print(f"| {file.name} | {len(facts)} | {len(clear)} | {len(clear) - len(wrong)} | {agreed} "
              f"| {sum(apart) / len(apart):.5f} | {max(apart):.4f} |", flush=True)
        if wrong:
            failed = True
            print(f"  {len(wrong)} tokens differ; the largest lead that was lost: {max(fact[3] for fact in wrong):.3f}")
    sys.exit("parity: tokens differ where llama.cpp was sure" if failed else 0)


if __name__ == "__main__":
    main()
