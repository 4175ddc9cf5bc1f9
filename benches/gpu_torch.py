"""PyTorch at the shape of Llama-3.1-8B, for `make gpu-bench`: a hand-written loop over scaled_dot_product_attention with a
static cache, compiled. Prints a line for each case, its last word the tokens per second."""

import sys
import time

BATCHES, PROMPT, STEPS, WARM, PREFILL = (1, 64, 256), 512, 64, 8, 2048
HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, DIM, VOCAB = 4096, 14336, 32, 32, 8, 128, 128256

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    sys.exit(f"no PyTorch: {error}")
if not torch.cuda.is_available():
    sys.exit("PyTorch finds no CUDA device")

torch.manual_seed(0)
torch.set_grad_enabled(False)


def matrix(rows, columns):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * 0.02


class Layer:
    def __init__(self):
        self.norms = [torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
        self.qkv = matrix((HEADS + 2 * KV_HEADS) * DIM, HIDDEN)
        self.out = matrix(HIDDEN, HEADS * DIM)
        self.gate_up = matrix(2 * INNER, HIDDEN)
        self.down = matrix(HIDDEN, INNER)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def forward(layers, caches, ends, tokens, positions):
    """`tokens` is [sequences, count], `positions` [count]; one token drawn for each sequence."""
    embedding, norm, head, frequencies = ends
    sequences, count = tokens.shape
    angles = positions[:, None].float() * frequencies[None]
    cos, sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
    seen = torch.arange(caches[0][0].shape[2], device="cuda")[None] <= positions[:, None]
    x = F.embedding(tokens, embedding)
    for layer, (keys, values) in zip(layers, caches):
        qkv = F.linear(F.rms_norm(x, (HIDDEN,), layer.norms[0], 1e-5), layer.qkv)
        qkv = qkv.view(sequences, count, HEADS + 2 * KV_HEADS, DIM).transpose(1, 2)
        q, k, v = qkv.split((HEADS, KV_HEADS, KV_HEADS), dim=1)
        keys.index_copy_(2, positions, rotate(k, cos, sin))
        values.index_copy_(2, positions, v)
        mixed = F.scaled_dot_product_attention(rotate(q, cos, sin), keys, values, attn_mask=seen, enable_gqa=True)
        x = x + F.linear(mixed.transpose(1, 2).reshape(sequences, count, HEADS * DIM), layer.out)
        gate, up = F.linear(F.rms_norm(x, (HIDDEN,), layer.norms[1], 1e-5), layer.gate_up).chunk(2, dim=-1)
        x = x + F.linear(F.silu(gate) * up, layer.down)
    return F.linear(F.rms_norm(x[:, -1], (HIDDEN,), norm, 1e-5), head).argmax(dim=-1)


def static_cache(sequences, length):
    shape = (sequences, KV_HEADS, length, DIM)
    made = lambda: torch.zeros(shape, device="cuda", dtype=torch.bfloat16)
    return [(made(), made()) for _ in range(LAYERS)]


def main():
    layers = [Layer() for _ in range(LAYERS)]
    frequencies = 500000.0 ** -(torch.arange(0, DIM, 2, device="cuda").float() / DIM)
    ends = (matrix(VOCAB, HIDDEN), torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16), matrix(VOCAB, HIDDEN), frequencies)
    compiled = torch.compile(forward, mode="reduce-overhead", dynamic=False)
    for sequences in BATCHES:
        caches = static_cache(sequences, PROMPT + STEPS)
        tokens = torch.randint(VOCAB, (sequences, 1), device="cuda")
        for at in range(STEPS):
            if at == WARM:
                torch.cuda.synchronize()
                began = time.perf_counter()
            position = torch.tensor([PROMPT + at], device="cuda")
            # Read back, as a server has to.
            compiled(layers, caches, ends, tokens, position).tolist()
        print(f"decode, {sequences} sequences: {sequences * (STEPS - WARM) / (time.perf_counter() - began):.1f}")
        del caches
    caches = static_cache(1, PREFILL)
    tokens, positions = torch.randint(VOCAB, (1, PREFILL), device="cuda"), torch.arange(PREFILL, device="cuda")
    for at in range(10):
        if at == 2:
            torch.cuda.synchronize()
            began = time.perf_counter()
        compiled(layers, caches, ends, tokens, positions).tolist()
    print(f"prefill, {PREFILL} tokens: {PREFILL * 8 / (time.perf_counter() - began):.1f}")


main()
