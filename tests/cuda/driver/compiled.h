//! How kernels that g++ has compiled are made known to the driver: name, and what their arguments are.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels.h"

namespace emulated {

/// Arrays are aligned to `alignment`, or where it is 0 to what their numbers want.
template <typename P>
Parameter parameter(size_t alignment) {
    if constexpr (std::is_pointer_v<P>) {
        using To = std::remove_pointer_t<P>;
        if constexpr (std::is_void_v<To>) return {sizeof(P), true, alignment ? alignment : 1};
        else return {sizeof(P), true, alignment ? alignment : alignof(To)};
    } else {
        return {sizeof(P), false, 1};
    }
}

template <typename P>
P read_argument(const unsigned char* from) {
    std::remove_const_t<P> value;
    memcpy(static_cast<void*>(&value), from, sizeof(value));
    return value;
}

template <typename... P, size_t... I>
Kernel compiled(void (*kernel)(P...), size_t alignment, std::index_sequence<I...>) {
    return {{parameter<P>(alignment)...},
            [kernel](unsigned char* const* arguments) { kernel(read_argument<P>(arguments[I])...); },
            false};
}

template <typename... P>
void add_kernel(const char* name, void (*kernel)(P...), size_t alignment = 0) {
    add_kernel(name, compiled(kernel, alignment, std::index_sequence_for<P...>()));
}

}  // namespace emulated
