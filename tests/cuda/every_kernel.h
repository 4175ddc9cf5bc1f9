// FOREBAY_EVERY_KERNEL: `ADD(name)`, which whoever includes this defines, for each kernel that launches.h declares.

#pragma once

#include "launches.h"

#define FOREBAY_ADD_A(M, a, A) ADD(M##_##a)
#define FOREBAY_ADD_A_C(M, a, A, c, C) ADD(M##_##a##_##c)
#define FOREBAY_ADD_A_C_D(M, a, A, c, C) ADD(M##_##a##_##c##_d64) ADD(M##_##a##_##c##_d128) ADD(M##_##a##_##c##_d256)
#define FOREBAY_EVERY_KERNEL                          \
    FOREBAY_FOR_A_C(FOREBAY_ADD_A_C, paged_store)     \
    FOREBAY_FOR_A_C(FOREBAY_ADD_A_C_D, paged_decode)  \
    FOREBAY_FOR_A_C(FOREBAY_ADD_A_C_D, paged_prefill) \
    FOREBAY_FOR_A(FOREBAY_ADD_A, paged_combine)       \
    FOREBAY_FOR_A(FOREBAY_ADD_A, rms_norm)            \
    FOREBAY_FOR_A(FOREBAY_ADD_A, rope)                \
    FOREBAY_FOR_A(FOREBAY_ADD_A, gate)                \
    FOREBAY_FOR_A(FOREBAY_ADD_A, sample)
