"""Every golden checkpoint as a GGUF file through llama.cpp, and through us: `make parity-goldens [FILES="gemma3 phi3"]`.

Opt-in, like parity.py, whose llama.cpp it uses. Each folder of tests/goldens becomes an F32 file, written by llama.cpp's own gguf
package with the keys, names and row orders of its converter (which itself wants a tokenizer that it knows). llama.cpp's logits for the
golden prompt are compared with those of the reference implementation: that says that the file is what llama.cpp takes it for. Ours
for the same file are compared with llama.cpp's. Both may differ by 5e-3 at most: llama.cpp looks GELU up in a table of F16, which moves
Gemma by 2e-3, the others differ by 1e-5.

What `forebay model quantize` makes of the folder has to load in llama.cpp, and both continue the prompt from that file: for 32 steps
along the reference's greedy tokens, wherever llama.cpp's best token is more than 0.05 ahead of its second, ours is the same one. How far
the rows are from each other and from the reference, in nats, is printed.

LLAMA_SOURCE and LLAMA_LIBRARIES name an unpacked llama-cpp-python and a folder of libllama.so that are already there; EXAMPLE is a built
`examples/logits`, FOREBAY the program.
"""

import json
import os
import pathlib
import struct
import subprocess
import sys

import gguf
import numpy

import parity

HERE = pathlib.Path(__file__).resolve().parent
GOLDENS = parity.REPO / "tests" / "goldens"
LARGEST = 5e-3
# As in parity.py.
CLEAR_LEAD = parity.CLEAR_LEAD
ARCHITECTURES = {"mistral": "llama", "mixtral": "llama", "qwen3_moe": "qwen3moe", "gemma3_text": "gemma3"}
# Those whose RoPE rotates neighbours there.
INTERLEAVED = ["llama", "granite", "smollm3"]
# What llama.cpp has no key for.
SKIPPED = {"mistral-window": "it has no key for the window of a Mistral", "bert-embedding": "encoders are not read from GGUF"}


def tensors(path):
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    kinds = {"F32": numpy.float32, "I64": numpy.int64}
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = (8 + length + offset for offset in entry["data_offsets"])
            yield name, numpy.frombuffer(raw[start:end], kinds[entry["dtype"]]).reshape(entry["shape"])


def interleaved(matrix, heads):
    """`permute` of the converter."""
    return matrix.reshape(heads, 2, matrix.shape[0] // heads // 2, *matrix.shape[1:]).swapaxes(1, 2).reshape(matrix.shape)


def renamed(name, outputs_normed):
    for ours, theirs in [
        ("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output"), ("model.layers", "blk"),
        ("block_sparse_moe", "mlp"), (".w1.", ".gate_proj."), (".w2.", ".down_proj."), (".w3.", ".up_proj."),
        ("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm"), ("self_attn.qkv_proj", "attn_qkv"),
        ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"), ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"), ("input_layernorm", "attn_norm"), ("pre_feedforward_layernorm", "ffn_norm"),
        ("post_attention_layernorm", "post_attention_norm" if outputs_normed else "ffn_norm"),
        ("post_feedforward_layernorm", "post_ffw_norm"), ("mlp.gate_up_proj", "ffn_up"), ("mlp.gate.", "ffn_gate_inp."),
        ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down"),
    ]:
        name = name.replace(ours, theirs)
    return name


def llama3_divisors(rope, width):
    """What the converter makes of Llama 3's scaling."""
    pairs = numpy.arange(0, width, 2, dtype=numpy.float64) / width
    wavelength = 2 * numpy.pi * rope["rope_theta"] ** pairs
    original, factor = rope["original_max_position_embeddings"], rope["factor"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = (original / wavelength - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    divisors = numpy.where(wavelength < original / high, 1, numpy.where(wavelength > original / low, factor, between))
    return divisors.astype(numpy.float32)


def convert(folder, out):
    config = json.loads((folder / "config.json").read_text())
    kind = config["model_type"]
    architecture = ARCHITECTURES.get(kind, kind)
    writer = gguf.GGUFWriter(out, architecture)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    rope = config["rope_parameters"]
    rope = rope.get("full_attention", rope)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(0)
    if experts := config.get("num_local_experts"):
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
        if width := config.get("moe_intermediate_size"):
            writer.add_expert_feed_forward_length(width)
    if architecture.startswith("gemma"):
        writer.add_sliding_window(config["sliding_window"])
        if pattern := config.get("sliding_window_pattern"):
            writer.add_uint32(f"{architecture}.attention.sliding_window_pattern", pattern)
        if cap := config.get("attn_logit_softcapping"):
            writer.add_attn_logit_softcapping(cap)
        if cap := config.get("final_logit_softcapping"):
            writer.add_final_logit_softcapping(cap)
    if architecture == "granite":
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(rope, head_dim))
    stacks = {}
    for name, numbers in tensors(folder / "model.safetensors"):
        if architecture in INTERLEAVED and ".q_proj." in name:
            numbers = interleaved(numbers, heads)
        if architecture in INTERLEAVED and ".k_proj." in name:
            numbers = interleaved(numbers, kv_heads)
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            numbers = numbers + 1
        name = renamed(name, architecture.startswith("gemma") or architecture == "olmo2")
        if ".mlp.experts." in name:
            layer, rest = name.split(".mlp.experts.")
            expert, projection, part = rest.split(".")
            stacks.setdefault(f"{layer}.ffn_{projection.removesuffix('_proj')}_exps.{part}", {})[int(expert)] = numbers
        else:
            writer.add_tensor(name, numpy.ascontiguousarray(numbers))
    for name, stack in stacks.items():
        writer.add_tensor(name, numpy.stack([stack[expert] for expert in sorted(stack)]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def largest(ours, theirs):
    return float(numpy.abs(ours - theirs).max())


def divergence(exact, other):
    def log_softmax(rows):
        rows = rows.astype(numpy.float64) - rows.max(1, keepdims=True)
        return rows - numpy.log(numpy.exp(rows).sum(1, keepdims=True))
    p, q = log_softmax(exact), log_softmax(other)
    return float((numpy.exp(p) * (p - q)).sum(1).mean())


def main():
    wanted = sys.argv[1:] or sorted(folder.name for folder in GOLDENS.iterdir() if (folder / "golden.safetensors").exists())
    source = os.environ.get("LLAMA_SOURCE")
    libraries = os.environ.get("LLAMA_LIBRARIES")
    if not source or not libraries:
        libraries = parity.llama("llama-server").parent
        source = parity.CACHE / f"llama_cpp_python-{parity.VERSION}"
    example = os.environ.get("EXAMPLE") or parity.BUILT / "examples/logits"
    program = os.environ.get("FOREBAY") or parity.BUILT / "forebay"
    work = parity.CACHE / "goldens"
    work.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in wanted:
        if name in SKIPPED:
            print(f"{name:16} skipped: {SKIPPED[name]}")
            continue
        golden = dict(tensors(GOLDENS / name / "golden.safetensors"))
        model, tokens, out = work / f"{name}.gguf", work / f"{name}.txt", work / f"{name}.f32"
        convert(GOLDENS / name, model)
        prompt, greedy = golden["prompt"], golden["greedy"]
        tokens.write_text(" ".join(map(str, [*prompt, *greedy[:-1]])) + "\n")
        small = work / f"{name}-q8_0.gguf"
        small.unlink(missing_ok=True)
        subprocess.run([program, "model", "quantize", GOLDENS / name, small, "--type", "q8_0"], check=True, stdout=subprocess.DEVNULL)
        rows = {}
        for whose, file in [("llama.cpp", model), ("forebay", model), ("their small", small), ("our small", small)]:
            if whose in ("forebay", "our small"):
                command = [example, "--model", file, "--tokens", tokens, "--out", out]
            else:
                command = [sys.executable, HERE / "llama_logits.py", source, libraries, file, tokens, tokens, out]
            subprocess.run([str(part) for part in command], check=True)
            rows[whose] = numpy.fromfile(out, numpy.float32).reshape(len(prompt) + len(greedy) - 1, -1)
        their_steps, our_steps = (rows[whose][len(prompt) - 1:] for whose in ("their small", "our small"))
        best = numpy.sort(their_steps, 1)
        clear = best[:, -1] - best[:, -2] > CLEAR_LEAD
        agree = their_steps.argmax(1) == our_steps.argmax(1)
        for whose in ("llama.cpp", "forebay", "their small"):
            rows[whose] = rows[whose][:len(prompt)]
        theirs, ours = largest(rows["llama.cpp"], golden["logits"]), largest(rows["forebay"], rows["llama.cpp"])
        # Two tokens that are closer than what both may differ by may change places.
        ranked = numpy.sort(rows["llama.cpp"], 1)
        told_apart = ranked[:, -1] - ranked[:, -2] > 2 * LARGEST
        same = bool((rows["forebay"].argmax(1) == rows["llama.cpp"].argmax(1))[told_apart].all())
        lost = divergence(golden["logits"], rows["their small"])
        apart = divergence(their_steps, our_steps)
        print(f"{name:16} llama.cpp from the reference {theirs:.1e}, ours from llama.cpp {ours:.1e}, same clear best tokens: {same}; "
              f"our Q8_0 in llama.cpp: KL {lost:.1e}; 32 steps of it: {agree[clear].sum()} of {clear.sum()} clear ones the same, "
              f"{agree.sum()} of all, KL {apart:.1e}")
        if theirs > LARGEST or ours > LARGEST or not same or not agree[clear].all():
            failed.append(name)
    sys.exit(f"differ: {', '.join(failed)}" if failed else 0)


main()
