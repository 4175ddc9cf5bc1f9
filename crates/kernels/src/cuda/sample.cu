//! `sample_*`: a token from a row of logits, as src/sampling draws it (`candidates.cuh` says where it may differ).

#include "select.cuh"

namespace forebay {

constexpr uint32_t NO_TOKEN = 0xffffffffu;

/// A float's bits such that higher numbers have higher ones; -0 is 0.
__device__ inline uint32_t ordered(float x) {
    const uint32_t bits = __float_as_uint(x + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/// The highest logit; ties go to the lowest id. `NO_TOKEN` where src/sampling refuses the row.
template <typename A>
__device__ inline uint32_t greedy(const A* logits, uint32_t vocab) {
    const float infinity = __builtin_huge_valf();
    uint64_t best = 0, refused = 0;
    for (uint32_t id = threadIdx.x; id < vocab; id += FOREBAY_SAMPLE_THREADS) {
        const float logit = to_float(logits[id]);
        // False for NaN, too.
        if (!(logit < infinity)) refused = 1;
        if (logit > -infinity) best = Largest()(best, static_cast<uint64_t>(ordered(logit)) << 32 | (NO_TOKEN - id));
    }
    refused = block_reduce(refused, Largest());
    best = block_reduce(best, Largest());
    return refused != 0 || best == 0 ? NO_TOKEN : NO_TOKEN - static_cast<uint32_t>(best);
}

/// The sum that a draw must reach: above `uniform` of the whole.
__device__ inline uint64_t drawn_weight(double uniform, uint64_t whole) {
    const uint64_t reached = static_cast<uint64_t>(uniform * static_cast<double>(whole)) + 1;
    return reached < whole ? reached : whole;
}

/// The last candidate up to `bound` that can be drawn.
template <typename A>
__device__ inline uint32_t last_id(const Candidates<A>& candidates, uint64_t bound) {
    // One more than the rank, so that zero is none.
    uint64_t last = 0;
    for (uint32_t id = threadIdx.x; id < candidates.vocab; id += FOREBAY_SAMPLE_THREADS) {
        const Candidate candidate = candidates.at(id);
        if (candidate.allowed && candidate.weight != 0 && candidate.rank <= bound) {
            last = Largest()(last, candidate.rank + 1);
        }
    }
    return static_cast<uint32_t>(block_reduce(last, Largest()) - 1);
}

/// Draws among `candidates` by ascending id; with `top_p`, by descending weight, as a sorted nucleus is drawn from.
template <typename A>
__device__ inline uint32_t draw(Candidates<A> candidates, uint32_t top_k, float top_p, double uniform) {
    Totals all = totals(candidates);
    if (top_k != 0 && top_k < all.count) {
        candidates.bound = lowest_rank(candidates, Unit::COUNT, top_k);
        all = totals(candidates);
    }
    if (top_p >= 1.0f) return id_reaching(candidates, drawn_weight(uniform, all.weight));
    uint64_t wanted = static_cast<uint64_t>(ceil(static_cast<double>(top_p) * static_cast<double>(all.weight)));
    wanted = wanted < 1 ? 1 : wanted < all.weight ? wanted : all.weight;
    candidates.bound = lowest_rank(candidates, Unit::WEIGHT, wanted);
    all = totals(candidates);
    return last_id(candidates, lowest_rank(candidates, Unit::WEIGHT, drawn_weight(uniform, all.weight)));
}

}  // namespace forebay

#define FOREBAY_DEFINE_SAMPLE(M, a, A)                                                                                 \
    extern "C" __global__ __launch_bounds__(FOREBAY_SAMPLE_THREADS, 1) FOREBAY_SAMPLE(a, A) {                          \
        const uint32_t row = blockIdx.x;                                                                               \
        const A* of = logits + static_cast<size_t>(rows[row]) * vocab;                                                 \
        uint32_t token = forebay::greedy(of, vocab);                                                                   \
        if (token != forebay::NO_TOKEN && temperature[row] > 0.0f) {                                                   \
            const forebay::Candidates<A> candidates = {                                                                \
                of, vocab, forebay::to_float(of[token]), temperature[row], min_p[row], forebay::EVERYTHING};           \
            token = forebay::draw(candidates, top_k[row], top_p[row], uniform[row]);                                   \
        }                                                                                                              \
        if (threadIdx.x == 0) tokens[row] = token;                                                                     \
    }

FOREBAY_FOR_A(FOREBAY_DEFINE_SAMPLE, FOREBAY_SAMPLE)
