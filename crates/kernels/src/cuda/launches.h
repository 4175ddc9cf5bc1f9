//! Every kernel that Rust launches: name, grid, block, arguments in order.
//!
//! What holds for all of them:
//! - `extern "C"`, no dynamic shared memory (0 bytes at every launch), no host synchronisation, no allocation.
//! - Arrays are contiguous, on the device, and aligned to 16 bytes; `head_dim` is a multiple of 8 and at most the `D`
//!   of the kernel's name. Scalars are `uint32_t` or `float`, offsets are 64 bits wide inside.
//! - A file is a module. `paged_decode_*` and `paged_prefill_*` lie in `decode_{c}.cu` and `prefill_{c}.cu`, the others
//!   in `store.cu`, `combine.cu`, `norm.cu`, `rope.cu`, `gate.cu` and `sample.cu`.
//! - {a} is the type of activations, {c} that of the caches: f32, f16, bf16. Arithmetic is in f32; on 16-bit caches the
//!   products of attention run on tensor cores, which take queries and probabilities rounded to {c}.
//! - `group` is `heads / kv_heads`. Query head `h` reads the cache's head `h / group`.
//! - Row `r` of sequence `s` (`starts[s] <= r < starts[s + 1]`) has position
//!   `contexts[s] - (starts[s + 1] - starts[s]) + (r - starts[s])`. It sees position `j` where `j < contexts[s]`, and
//!   `j <= position` if `causal`, and `j + window > position` if `window` is not 0.
//! - Scores are `q.k * scale`, then `cap * tanh(score / cap)` if `cap` is not 0.
//! - What a row gives depends, bit for bit, on that row, its cache and the scalars only: not on the grid's size, on
//!   other rows, or on where they lie. Decode and prefill sum in different orders, so the two may differ in last bits.
#pragma once

#include "types.cuh"

// Threads per block.
#define FOREBAY_STORE_THREADS 128
#define FOREBAY_DECODE_THREADS 128
#define FOREBAY_COMBINE_THREADS 128
#define FOREBAY_PREFILL_THREADS 128
#define FOREBAY_NORM_THREADS 256
#define FOREBAY_ELEMENT_THREADS 256
#define FOREBAY_SAMPLE_THREADS 1024

// A decode block takes so many heads of a group, a prefill block so many (row, head) pairs.
#define FOREBAY_DECODE_HEADS 16
#define FOREBAY_PREFILL_ROWS 64
// `split_len` is a multiple of this. 256 is a good value, and must be the same in every step of a server: it decides
// where sums are cut.
#define FOREBAY_SPLIT_UNIT 64
// Norms of groups no wider than this take a warp each, `FOREBAY_NORM_THREADS / 32` groups to a block; wider ones a
// block.
#define FOREBAY_NORM_WARP_WIDTH 1024

// Writes rows of keys and values to their slots of both caches, converting.
//
// Grid (T), block FOREBAY_STORE_THREADS.
//   k, v             {a} [T, width], width = kv_heads * head_dim, a multiple of 8
//   k_cache, v_cache {c} [num_blocks * block_size, width]
//   slots            u32 [T]: block * block_size + offset; UINT32_MAX stores nothing (padding of a captured graph)
#define FOREBAY_STORE(a, A, c, C)                                                                                      \
    void paged_store_##a##_##c(const A* k, const A* v, C* k_cache, C* v_cache, const uint32_t* slots, uint32_t width)

// Attention of sequences with a chunk of one row, one range of positions of one KV head at a time.
//
// Grid (splits, kv_heads * ceil(group / FOREBAY_DECODE_HEADS), N), block FOREBAY_DECODE_THREADS.
// splits >= ceil(max(contexts) / split_len); blocks of ranges behind a context, or before its window, return at once,
// so a captured graph may take the longest context's. A sequence whose context is 0 is padding.
//   q                {a} [T, heads, head_dim]
//   k_cache, v_cache {c} [num_blocks, block_size, kv_heads, head_dim], block_size a multiple of 16
//   block_tables     u32 [S, max_blocks]
//   contexts         u32 [S], this step's rows included
//   starts           u32 [S + 1]
//   items            u32 [N]: the sequences
//   partial          f32 [N, heads, splits, head_dim], written: sums of values, weighted by exp(score - maximum)
//   stats            f32 [N, heads, splits, 2], written: log2(e) * that maximum, and the sum of the weights
// Only the ranges that a row sees are written.
#define FOREBAY_DECODE(a, A, c, C, D)                                                                                  \
    void paged_decode_##a##_##c##_d##D(                                                                                \
        const A* q, const C* k_cache, const C* v_cache, const uint32_t* block_tables, const uint32_t* contexts,       \
        const uint32_t* starts, const uint32_t* items, float* partial, float* stats, uint32_t kv_heads,               \
        uint32_t group, uint32_t head_dim, uint32_t block_size, uint32_t max_blocks, uint32_t split_len, float scale, \
        float cap, uint32_t window)

// Merges what `paged_decode` left, in ascending order of ranges, and writes the rows of `out`.
//
// Grid (heads, N), block FOREBAY_COMBINE_THREADS. `splits`, `split_len` and `window` are those of the decode launch.
//   out              {a} [T, heads, head_dim]; rows of padding sequences are left alone
#define FOREBAY_COMBINE(a, A)                                                                                          \
    void paged_combine_##a(                                                                                            \
        const float* partial, const float* stats, const uint32_t* contexts, const uint32_t* starts,                   \
        const uint32_t* items, A* out, uint32_t head_dim, uint32_t splits, uint32_t split_len, uint32_t window)

// Attention of chunks of any length: tiles of rows, each with all heads of a group.
//
// Grid (P, kv_heads * ceil(group / FOREBAY_PREFILL_ROWS)), block FOREBAY_PREFILL_THREADS.
//   tiles            u32 [P, 2]: sequence, first row within its chunk. A tile has
//                    max(1, FOREBAY_PREFILL_ROWS / group) rows, fewer at the chunk's end
//   out              {a} [T, heads, head_dim]
//   causal           0 or 1
// The rest as for decode.
#define FOREBAY_PREFILL(a, A, c, C, D)                                                                                 \
    void paged_prefill_##a##_##c##_d##D(                                                                               \
        const A* q, const C* k_cache, const C* v_cache, const uint32_t* block_tables, const uint32_t* contexts,       \
        const uint32_t* starts, const uint32_t* tiles, A* out, uint32_t kv_heads, uint32_t group, uint32_t head_dim,  \
        uint32_t block_size, uint32_t max_blocks, float scale, float cap, uint32_t window, uint32_t causal)

// out = normed(sum) * weight over consecutive groups of `width`, where sum = x + residual and
// normed(y) = y / sqrt(mean(y^2) + eps).
//
// Grid (width <= FOREBAY_NORM_WARP_WIDTH ? ceil(groups / (FOREBAY_NORM_THREADS / 32)) : groups), block
// FOREBAY_NORM_THREADS.
//   x, out           {a} [groups, width]; out may be x
//   residual, sum    {a} [groups, width], both null or neither; `sum` is written (rounded to {a}, and it is that which
//                    is normed), and may be x or residual
//   weight           {a} [width]
#define FOREBAY_RMS_NORM(a, A)                                                                                         \
    void rms_norm_##a(                                                                                                 \
        const A* x, const A* residual, const A* weight, A* out, A* sum, uint32_t groups, uint32_t width, float eps)

// Rotates the first `dims` dimensions of each head in place: dimension i with i + dims / 2.
//
// Grid (T, ceil(heads * dims / 2 / FOREBAY_ELEMENT_THREADS)), block FOREBAY_ELEMENT_THREADS.
//   x                {a} [T, heads, head_dim]; head_dim of any size here
//   cos, sin         f32 [T, dims / 2]
#define FOREBAY_ROPE(a, A)                                                                                             \
    void rope_##a(A* x, const float* cos, const float* sin, uint32_t heads, uint32_t head_dim, uint32_t dims)

// out = activation(gate) * up; activation 0: silu, 1: gelu (erf), 2: gelu (tanh).
//
// Grid (min(65535, ceil(count / (8 * FOREBAY_ELEMENT_THREADS)))) or any other: threads stride. Block
// FOREBAY_ELEMENT_THREADS.
//   gate, up, out    {a} [count]; out may be gate; up may be null, which is a factor of one
#define FOREBAY_GATE(a, A)                                                                                             \
    void gate_##a(const A* gate, const A* up, A* out, uint64_t count, uint32_t activation)

// Draws a token for each of `rows`, as src/sampling does: temperature, min-p, top-k, top-p, inverse transform; greedy
// (ties: lowest id) at temperature 0. Its header says where rounding may make it differ.
//
// Grid (N), block FOREBAY_SAMPLE_THREADS.
//   logits           {a} [R, vocab], vocab <= 2^19
//   rows             u32 [N]: rows of `logits`
//   temperature, min_p, top_p f32 [N]; top_p >= 1 keeps all
//   top_k            u32 [N]; 0 keeps all
//   uniform          f64 [N], in [0, 1): src/sampling's number for (seed, position)
//   tokens           u32 [N], written; UINT32_MAX where a row has a NaN, +inf, or nothing above -inf
#define FOREBAY_SAMPLE(a, A)                                                                                           \
    void sample_##a(                                                                                                   \
        const A* logits, const uint32_t* rows, const float* temperature, const float* min_p, const uint32_t* top_k,   \
        const float* top_p, const double* uniform, uint32_t* tokens, uint32_t vocab)

// What there is: X(declaration macro, its arguments).
#define FOREBAY_FOR_A(X, M) X(M, f32, float) X(M, f16, __half) X(M, bf16, __nv_bfloat16)
#define FOREBAY_FOR_A_C(X, M)                                                                                          \
    X(M, f32, float, f32, float) X(M, f32, float, f16, __half) X(M, f32, float, bf16, __nv_bfloat16)                   \
    X(M, f16, __half, f32, float) X(M, f16, __half, f16, __half) X(M, f16, __half, bf16, __nv_bfloat16)                \
    X(M, bf16, __nv_bfloat16, f32, float) X(M, bf16, __nv_bfloat16, f16, __half)                                       \
    X(M, bf16, __nv_bfloat16, bf16, __nv_bfloat16)

#define FOREBAY_DECLARE_A(M, a, A) extern "C" __global__ M(a, A);
#define FOREBAY_DECLARE_A_C(M, a, A, c, C) extern "C" __global__ M(a, A, c, C);
#define FOREBAY_DECLARE_A_C_D(M, a, A, c, C)                                                                           \
    extern "C" __global__ M(a, A, c, C, 64);                                                                           \
    extern "C" __global__ M(a, A, c, C, 128);                                                                          \
    extern "C" __global__ M(a, A, c, C, 256);

FOREBAY_FOR_A_C(FOREBAY_DECLARE_A_C, FOREBAY_STORE)
FOREBAY_FOR_A_C(FOREBAY_DECLARE_A_C_D, FOREBAY_DECODE)
FOREBAY_FOR_A_C(FOREBAY_DECLARE_A_C_D, FOREBAY_PREFILL)
FOREBAY_FOR_A(FOREBAY_DECLARE_A, FOREBAY_COMBINE)
FOREBAY_FOR_A(FOREBAY_DECLARE_A, FOREBAY_RMS_NORM)
FOREBAY_FOR_A(FOREBAY_DECLARE_A, FOREBAY_ROPE)
FOREBAY_FOR_A(FOREBAY_DECLARE_A, FOREBAY_GATE)
FOREBAY_FOR_A(FOREBAY_DECLARE_A, FOREBAY_SAMPLE)
