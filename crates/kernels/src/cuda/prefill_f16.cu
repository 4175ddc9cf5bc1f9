//! `paged_prefill_*_f16_*`: one file per type of cache, so that a server loads only the kernels of its own.

#include "prefill.cuh"

FOREBAY_DEFINE_PREFILLS(f16, __half)
