//! candle's products of many rows with quantised weights, by their definition: the kernels themselves are assembly for
//! tensor cores. One thread does it all.

#include "mmq.h"

#include <cuda_fp16.h>

#include <cmath>
#include <cstring>

#include "driver.h"
#include "emulated_threads.h"

namespace emulated {
namespace {

/// 128 numbers of a row in eight bits, and what scales them.
struct Rounded {
    unsigned char scales[16];
    int8_t numbers[128];
};

/// How they are scaled: 32 at a time by a float, 32 by half a float beside their sum, 64 by half a float.
enum class Scales { FLOATS, HALVES, WIDE };

float half_at(const unsigned char* from) {
    __half number;
    memcpy(static_cast<void*>(&number), from, sizeof(number));
    return __half2float(number);
}

void put_half(unsigned char* to, float number) {
    const __half rounded = __float2half_rn(number);
    memcpy(to, static_cast<const void*>(&rounded), sizeof(rounded));
}

float scale(const Rounded& block, Scales scales, int at) {
    float number;
    if (scales == Scales::HALVES) return half_at(block.scales + at / 32 * 4);
    if (scales == Scales::WIDE) return half_at(block.scales + at / 64 * 2);
    memcpy(&number, block.scales + at / 32 * 4, sizeof(number));
    return number;
}

template <typename T>
T argument(unsigned char* const* arguments, size_t index) {
    T value;
    memcpy(&value, arguments[index], sizeof(value));
    return value;
}

bool first_thread() {
    return blockIdx.x + blockIdx.y + blockIdx.z + threadIdx.x + threadIdx.y + threadIdx.z == 0;
}

void round_block(const float* numbers, long count, Rounded& block, Scales scales) {
    const int width = scales == Scales::WIDE ? 64 : 32;
    block = {};
    for (int group = 0; group < 128; group += width) {
        float most = 0, sum = 0;
        auto number = [&](int i) { return group + i < count ? numbers[group + i] : 0.0f; };
        for (int i = 0; i < width; i++) most = std::fmax(most, std::fabs(number(i))), sum += number(i);
        const float d = most / 127;
        for (int i = 0; i < width; i++) block.numbers[group + i] = most ? int8_t(std::round(number(i) / d)) : 0;
        if (scales == Scales::FLOATS) memcpy(block.scales + group / 32 * 4, &d, sizeof(d));
        if (scales == Scales::HALVES) put_half(block.scales + group / 32 * 4, d);
        if (scales == Scales::HALVES) put_half(block.scales + group / 32 * 4 + 2, sum);
        if (scales == Scales::WIDE) put_half(block.scales + group / 64 * 2, d);
    }
}

/// x, ids, y, width, strides of three axes, padded width, rows, channels.
void quantise(unsigned char* const* arguments, Scales scales) {
    if (!first_thread()) return;
    const auto* x = argument<const float*>(arguments, 0);
    auto* y = argument<Rounded*>(arguments, 2);
    const long width = argument<long>(arguments, 3), stride = argument<long>(arguments, 4);
    const long padded = argument<long>(arguments, 7);
    const int rows = argument<int>(arguments, 8);
    for (long row = 0; row < rows; row++) {
        for (long at = 0; at < padded; at += 128) {
            round_block(x + row * stride + at, width - at, y[at / 128 * rows + row], scales);
        }
    }
}

/// Number `at` of a row of blocks.
float weight_q8_0(const unsigned char* row, int at) {
    const unsigned char* block = row + at / 32 * 34;
    return half_at(block) * int8_t(block[2 + at % 32]);
}

float weight_q4_k(const unsigned char* row, int at) {
    const unsigned char *block = row + at / 256 * 144, *scales = block + 4;
    const int group = at % 256 / 32, nibbles = block[16 + group / 2 * 32 + at % 32];
    int factor = scales[group] & 63, offset = scales[group % 8 + (group < 4 ? 4 : 0)] & 63;
    if (group >= 4) {
        factor = (scales[group + 4] & 15) | (scales[group - 4] >> 6) << 4;
        offset = scales[group + 4] >> 4 | (scales[group] >> 6) << 4;
    }
    return half_at(block) * factor * (group % 2 ? nibbles >> 4 : nibbles & 15) - half_at(block + 2) * offset;
}

/// x, y, two of experts, out, scratch, inputs, outputs, rows, blocks between outputs of x, rows, stride of out, ...
void multiply(unsigned char* const* arguments, int type) {
    if (!first_thread()) return;
    const bool q8_0 = type == 8;
    if (!q8_0 && type != 12) broken("products of many rows with weights of type %d are not emulated", type);
    const auto* x = argument<const unsigned char*>(arguments, 0);
    const auto* y = argument<const Rounded*>(arguments, 1);
    auto* out = argument<float*>(arguments, 4);
    const int inputs = argument<int>(arguments, 6), outputs = argument<int>(arguments, 7);
    const int rows = argument<int>(arguments, 8), blocks = argument<int>(arguments, 9);
    const int stride = argument<int>(arguments, 11);
    const Scales scales = q8_0 ? Scales::FLOATS : Scales::HALVES;
    for (int output = 0; output < outputs; output++) {
        const unsigned char* weights = x + size_t(output) * size_t(blocks) * (q8_0 ? 34 : 144);
        std::vector<float> wide(static_cast<size_t>(inputs));
        for (int at = 0; at < inputs; at++) {
            wide[size_t(at)] = q8_0 ? weight_q8_0(weights, at) : weight_q4_k(weights, at);
        }
        for (int row = 0; row < rows; row++) {
            float sum = 0;
            for (int at = 0; at < inputs; at++) {
                const Rounded& block = y[at / 128 * rows + row];
                sum += wide[size_t(at)] * scale(block, scales, at % 128) * block.numbers[at % 128];
            }
            out[size_t(row) * size_t(stride) + size_t(output)] = sum;
        }
    }
}

Parameter pointer() { return {8, true, 4}; }
Parameter number(size_t bytes) { return {bytes, false, 1}; }

/// The digit behind `mark`.
bool numbered(const std::string& name, const char* mark, int& digit) {
    const size_t at = name.find(mark);
    if (at == std::string::npos) return false;
    digit = std::stoi(name.substr(at + strlen(mark)));
    return true;
}

}  // namespace

bool defined_product(const std::string& name, Kernel& kernel) {
    int which;
    kernel.by_definition = true;
    if (numbered(name, "quantize_mmq_q8_1IL18mmq_q8_1_ds_layout", which)) {
        kernel.parameters = {pointer(), pointer(), pointer()};
        kernel.parameters.insert(kernel.parameters.end(), 5, number(8));
        kernel.parameters.insert(kernel.parameters.end(), 2, number(4));
        kernel.thread = [which](unsigned char* const* arguments) { quantise(arguments, Scales(which)); };
        return true;
    }
    if (numbered(name, "9mul_mat_qIL9ggml_type", which)) {
        kernel.parameters.assign(6, pointer());
        kernel.parameters.insert(kernel.parameters.end(), 17, number(4));
        // Blocks begin at even addresses.
        kernel.parameters[0].alignment = 2;
        kernel.thread = [which](unsigned char* const* arguments) { multiply(arguments, which); };
        return true;
    }
    // Adds up what blocks have left to each other, and a definition leaves nothing.
    kernel.thread = [](unsigned char* const*) {};
    return name.find("mul_mat_q_stream_k_fixup") != std::string::npos;
}

}  // namespace emulated
