//! Modules of PTX: what their kernels declare.

#include <cctype>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>

#include "driver.h"

struct CUfunc_st {
    emulated::Entry entry;
};

struct CUmod_st {
    std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};

namespace emulated {
namespace {

/// `.u64`, `.f32`, `.b8` in bytes.
size_t bytes_of_type(const std::string& word) { return std::stoul(word.substr(2)) / 8; }

bool is_type(const std::string& word) {
    return word.size() >= 3 && word[0] == '.' && strchr("usfb", word[1]) && isdigit(static_cast<unsigned char>(word[2]));
}

/// `[24]` at the end of a name; 1 without.
size_t elements(const std::string& declaration) {
    const size_t open = declaration.find('[');
    return open == std::string::npos ? 1 : std::stoul(declaration.substr(open + 1));
}

/// Of `.param .u64 name` or `.shared .align 16 .b8 name[512]`.
size_t declared_bytes(const std::string& declaration) {
    std::istringstream words(declaration);
    size_t bytes = 0;
    for (std::string word; words >> word;) {
        if (is_type(word) && bytes == 0) bytes = bytes_of_type(word);
    }
    if (bytes == 0) broken("a declaration without a type: %s", declaration.c_str());
    return bytes * elements(declaration);
}

unsigned product(const std::string& numbers) {
    std::istringstream parts(numbers);
    unsigned all = 1;
    for (std::string number; std::getline(parts, number, ',');) all *= std::stoul(number);
    return all;
}

/// From behind the kernel's name to the end of its body.
Entry read_entry(const std::string& name, const std::string& text) {
    Entry entry;
    entry.name = name;
    const size_t open = text.find('('), close = text.find(')'), body = text.find("\n{", close);
    std::istringstream parameters(text.substr(open + 1, close - open - 1));
    for (std::string each; std::getline(parameters, each, ',');) {
        if (each.find(".param") != std::string::npos) entry.parameters.push_back(declared_bytes(each));
    }
    const std::string directives = text.substr(close, body - close);
    for (const char* word : {".maxntid", ".reqntid"}) {
        const size_t at = directives.find(word);
        if (at == std::string::npos) continue;
        const size_t numbers = at + strlen(word);
        entry.most_threads = product(directives.substr(numbers, directives.find('\n', numbers) - numbers));
    }
    const size_t end = text.find("\n}", body);
    for (size_t at = text.find(".shared .align", body); at < end; at = text.find(".shared .align", at + 1)) {
        entry.shared_bytes += declared_bytes(text.substr(at, text.find(';', at) - at));
    }
    return entry;
}

}  // namespace
}  // namespace emulated

using namespace emulated;

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    Guard guard(lock());
    // The first module of a process may be loaded lazily by a device, too, but not while it records.
    if (spoils_any_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    const std::string text(static_cast<const char*>(image));
    if (text.find(".version") == std::string::npos) return CUDA_ERROR_INVALID_IMAGE;
    *module = new CUmod_st;
    const std::string word = ".entry ";
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
        const size_t name = at + word.size(), end = text.find('(', name);
        auto function = std::make_unique<CUfunc_st>();
        const size_t next = text.find(word, end);
        function->entry = read_entry(text.substr(name, end - name), text.substr(end, next - end));
        (*module)->functions[function->entry.name] = std::move(function);
    }
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
    Guard guard(lock());
    finish_all();
    delete module;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    Guard guard(lock());
    const auto found = module->functions.find(name);
    if (found == module->functions.end()) return CUDA_ERROR_NOT_FOUND;
    *function = found->second.get();
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    Guard guard(lock());
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
    if (value < 0 || size_t(value) + function->entry.shared_bytes > MOST_SHARED) return CUDA_ERROR_INVALID_VALUE;
    function->entry.dynamic_bytes = size_t(value);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** arguments,
                        void** extra) {
    Guard guard(lock());
    if (extra) broken("%s: arguments in one piece are not emulated", function->entry.name.c_str());
    const Shape shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
    return launch(function->entry, shape, stream, arguments);
}

}  // extern "C"
