//! What is not emulated: each function of a header, as one that names itself and ends the process.
#pragma once

#include <stdio.h>
#include <stdlib.h>

#define ABSENT(name)                                                   \
    __attribute__((weak)) void name(void);                             \
    void name(void) {                                                  \
        fputs("emulated CUDA: " #name " is not emulated\n", stderr);   \
        fflush(stderr);                                                \
        _Exit(3);                                                      \
    }
