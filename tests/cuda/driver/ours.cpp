//! The kernels of src/kernels/cuda.

#include "compiled.h"
#include "launches.h"

// All arrays begin at multiples of 16 bytes: launches.h asks for it.
#define ADD(name) emulated::add_kernel(#name, name, 16);
#define ADD_A(M, a, A) ADD(M##_##a)
#define ADD_A_C(M, a, A, c, C) ADD(M##_##a##_##c)
#define ADD_A_C_D(M, a, A, c, C) ADD(M##_##a##_##c##_d64) ADD(M##_##a##_##c##_d128) ADD(M##_##a##_##c##_d256)

[[maybe_unused]] static const bool known = [] {
    FOREBAY_FOR_A_C(ADD_A_C, paged_store)
    FOREBAY_FOR_A_C(ADD_A_C_D, paged_decode)
    FOREBAY_FOR_A_C(ADD_A_C_D, paged_prefill)
    FOREBAY_FOR_A(ADD_A, paged_combine)
    FOREBAY_FOR_A(ADD_A, rms_norm)
    FOREBAY_FOR_A(ADD_A, rope)
    FOREBAY_FOR_A(ADD_A, gate)
    FOREBAY_FOR_A(ADD_A, sample)
    return true;
}();
