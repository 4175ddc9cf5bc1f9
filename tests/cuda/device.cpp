//! A device behind a pipe: arrays and launches come in on standard input, as tests/it/models/cuda_kernels/device.rs writes
//! them.
//!
//! Commands are one byte, numbers little-endian:
//! - `A` u64 length, bytes: an array of its own, exactly as long, so that the address sanitizer sees what lies outside
//! - `R` u64 array: answers with its bytes
//! - `L` u64 length, name; u32 grid x, y, z; u32 threads; u64 seed; u64 count, u64 each: arrays by the order in which
//!   they came, all ones for a null pointer, floats and doubles by their bits. Answers with one byte when done
//! - `C` forgets all arrays

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "every_kernel.h"
#include "fibers.h"

namespace {

struct Array {
    unsigned char* bytes;
    size_t length;
};
std::vector<Array> arrays;

using Arguments = std::vector<uint64_t>;

template <typename P>
P argument(uint64_t given) {
    if constexpr (std::is_pointer_v<P>) {
        return given == ~0ull ? nullptr : reinterpret_cast<P>(arrays.at(given).bytes);
    } else {
        P value;
        memcpy(&value, &given, sizeof(value));
        return value;
    }
}

template <typename... P, size_t... I>
void launch(void (*kernel)(P...), const Arguments& given, const emulated::Launch& how, std::index_sequence<I...>) {
    if (given.size() != sizeof...(P)) emulated::fail("a launch with too few or too many arguments");
    emulated::run(how, [&] { kernel(argument<P>(given[I])...); });
}

using Kernel = std::function<void(const Arguments&, const emulated::Launch&)>;

template <typename... P>
Kernel erased(void (*kernel)(P...)) {
    return [kernel](const Arguments& given, const emulated::Launch& how) {
        launch(kernel, given, how, std::index_sequence_for<P...>());
    };
}

std::map<std::string, Kernel> kernels() {
    std::map<std::string, Kernel> all;
#define ADD(name) all[#name] = erased(name);
    FOREBAY_EVERY_KERNEL
    return all;
}

void read_bytes(void* to, size_t length) {
    if (length != 0 && fread(to, 1, length, stdin) != length) emulated::fail("the commands end too early");
}

template <typename T>
T read_number() {
    T number;
    read_bytes(&number, sizeof(number));
    return number;
}

void take_array() {
    const size_t length = read_number<uint64_t>();
    Array array = {static_cast<unsigned char*>(malloc(length)), length};
    read_bytes(array.bytes, length);
    arrays.push_back(array);
}

void run_launch(const std::map<std::string, Kernel>& all) {
    std::string name(read_number<uint64_t>(), ' ');
    read_bytes(name.data(), name.size());
    emulated::Launch how;
    read_bytes(how.grid, sizeof(how.grid));
    how.block[0] = read_number<uint32_t>();
    how.block[1] = how.block[2] = 1;
    how.seed = read_number<uint64_t>();
    Arguments given(read_number<uint64_t>());
    read_bytes(given.data(), given.size() * sizeof(uint64_t));
    const auto found = all.find(name);
    if (found == all.end()) emulated::fail(("there is no kernel " + name).c_str());
    found->second(given, how);
    putchar('.');
}

void forget() {
    for (Array& array : arrays) free(array.bytes);
    arrays.clear();
}

}  // namespace

int main() {
    const std::map<std::string, Kernel> all = kernels();
    for (int command; (command = getchar()) != EOF; fflush(stdout)) {
        if (command == 'A') {
            take_array();
        } else if (command == 'R') {
            const Array& array = arrays.at(read_number<uint64_t>());
            fwrite(array.bytes, 1, array.length, stdout);
        } else if (command == 'L') {
            run_launch(all);
        } else if (command == 'C') {
            forget();
        } else {
            emulated::fail("an unknown command");
        }
    }
    forget();
}
