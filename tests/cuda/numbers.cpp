//! Conversions of 16-bit numbers: nearest, ties to even.

#include <array>
#include <bit>

#include "emulated_cuda.h"

static float half_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float sign = bits >> 15 ? -1.0f : 1.0f;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * std::ldexp(float(fraction), -24);
    return sign * std::ldexp(float(fraction + 1024), exponent - 25);
}

float __half2float(__half x) {
    static const auto values = [] {
        std::array<float, 65536> all;
        for (uint32_t bits = 0; bits < 65536; bits++) all[bits] = half_value(uint16_t(bits));
        return all;
    }();
    return values[x.bits];
}

__half __float2half_rn(float x) {
    const uint16_t sign = std::bit_cast<uint32_t>(x) >> 31 << 15;
    const float size = std::fabs(x);
    if (std::isnan(x)) return {0x7fff};
    if (size >= 65520.0f) return {uint16_t(sign | 0x7c00)};
    // The distance between two neighbours there; nearbyint rounds ties to even, and a carry moves into the exponent.
    const int exponent = size < 0x1p-14f ? -14 : std::ilogb(size);
    const uint32_t steps = uint32_t(std::nearbyint(std::ldexp(size, 10 - exponent)));
    const uint32_t bits = exponent == -14 && size < 0x1p-14f ? steps : (uint32_t(exponent + 14) << 10) + steps;
    return {uint16_t(sign | bits)};
}

__nv_bfloat16 __float2bfloat16_rn(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    if (std::isnan(x)) return {0x7fff};
    return {uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
