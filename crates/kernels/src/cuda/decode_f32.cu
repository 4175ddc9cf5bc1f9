//! `paged_decode_*_f32_*`: one file per type of cache, so that a server loads only the kernels of its own.

#include "decode.cuh"

FOREBAY_DEFINE_DECODES(f32, float)
