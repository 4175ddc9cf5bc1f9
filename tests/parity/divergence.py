"""How far each quantised file's logits are from those of the same numbers as F32, ours and llama.cpp's:
`make divergence [FILES="a.gguf b.gguf"]`.

Opt-in, like parity.py, whose tools and files it uses. The text is README.md and the pages of docs/ in the file's own tokens: 4
sequences of 128, and every position counts. Each engine is compared with itself on the widened file, so that only the rounding
of activations is measured, not how the two differ in F32. Divergence is the mean of KL(F32 ‖ quantised) in nats, top-1 the share
of positions with the same best token. It ends with an error if ours is worse than llama.cpp's: its divergence by a tenth, its
top-1 by more than two standard deviations of the positions on which only one of us is right. A Q8_0's top-1 has to be 99 % as
well, unless llama.cpp's is below that, too: models of random weights have hardly any best token.

EXAMPLE=path is a built `examples/logits`; without it cargo builds one.
"""

import os
import pathlib
import sys

import numpy

import parity

POSITIONS, SEQUENCES = 128, 4
LEAST_Q8_0 = 0.99


def text():
    """Prose and code that nobody made for this."""
    joined = parity.CACHE / "divergence.txt"
    pages = [parity.REPO / "README.md", *sorted((parity.REPO / "docs").glob("*.md"))]
    joined.write_text("\n".join(page.read_text() for page in pages))
    return joined


def rows(path, count):
    return numpy.memmap(path, dtype=numpy.float32, mode="r").reshape(count, -1)


def log_softmax(row):
    row = row.astype(numpy.float64)
    row -= row.max()
    return row - numpy.log(numpy.exp(row).sum())


def compare(exact, approximate):
    """Mean divergence in nats, and for each position whether the best tokens are equal."""
    divergences, same = [], []
    for true, other in zip(exact, approximate):
        p, q = log_softmax(true), log_softmax(other)
        divergences.append(float((numpy.exp(p) * (p - q)).sum()))
        same.append(bool(true.argmax() == other.argmax()))
    return sum(divergences) / len(divergences), same


def worse(ours, theirs):
    """Whether our top-1 is below theirs by more than chance would have it."""
    only_ours = sum(our and not their for our, their in zip(ours, theirs))
    only_theirs = sum(their and not our for our, their in zip(ours, theirs))
    return only_theirs - only_ours > 2 * (only_ours + only_theirs) ** 0.5


def example():
    if "EXAMPLE" in os.environ:
        return pathlib.Path(os.environ["EXAMPLE"])
    parity.run("cargo", "build", "--release", "--locked", "--example", "logits", cwd=parity.REPO)
    return parity.BUILT / "examples/logits"


def measured(file, wide, ours, page):
    """((divergence, top-1) of ours, of theirs), and how far our F32 is from theirs."""
    libraries = parity.llama("llama-server").parent
    bindings = parity.CACHE / f"llama_cpp_python-{parity.VERSION}"
    tokens = parity.CACHE / f"{file.stem}.tokens"
    tokens.unlink(missing_ok=True)
    out = {}
    for name, model in (("file", file), ("wide", wide)):
        out["theirs", name] = parity.CACHE / f"theirs-{name}.f32"
        parity.run(sys.executable, pathlib.Path(__file__).with_name("llama_logits.py"), bindings, libraries, model, page,
                   tokens, out["theirs", name], SEQUENCES, POSITIONS)
        out["ours", name] = parity.CACHE / f"ours-{name}.f32"
        parity.run(ours, "--model", model, "--tokens", tokens, "--out", out["ours", name])
    logits = {key: rows(path, SEQUENCES * POSITIONS) for key, path in out.items()}
    results = [compare(logits[who, "wide"], logits[who, "file"]) for who in ("ours", "theirs")]
    apart = compare(logits["theirs", "wide"], logits["ours", "wide"])
    for path in out.values():
        path.unlink()
    return results, apart


def main():
    parity.CACHE.mkdir(exist_ok=True)
    files = [pathlib.Path(name) for name in sys.argv[1:]] or parity.models()
    ours, page, failures, table = example(), text(), [], []
    for file in files:
        wide = parity.widened(file)
        if wide is None:
            continue
        ((our_divergence, our_same), (their_divergence, their_same)), (apart, _) = measured(file, wide, ours, page)
        our_top, their_top = (sum(same) / len(same) for same in (our_same, their_same))
        table.append(f"| {file.name} | {our_divergence:.2e} | {their_divergence:.2e} | {our_top:.2%} | {their_top:.2%} | {apart:.1e} |")
        if "q8_0" in file.name and our_top < LEAST_Q8_0 <= their_top:
            failures.append(f"{file.name}: top-1 {our_top:.2%}")
        if worse(our_same, their_same) or our_divergence > 1.1 * their_divergence:
            failures.append(f"{file.name}: worse than llama.cpp")
    print(f"\n| file, {SEQUENCES * POSITIONS} positions | our KL | llama.cpp's KL | our top-1 | llama.cpp's top-1 | KL between the F32s |")
    print("|---|---|---|---|---|---|", *table, sep="\n")
    sys.exit("divergence: " + "; ".join(failures) if failures else 0)


if __name__ == "__main__":
    main()
