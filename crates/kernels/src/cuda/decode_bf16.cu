//! `paged_decode_*_bf16_*`: one file per type of cache, so that a server loads only the kernels of its own.

#include "decode.cuh"

FOREBAY_DEFINE_DECODES(bf16, __nv_bfloat16)
