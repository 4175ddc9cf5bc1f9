//! Products of many rows with quantised weights.
#pragma once

#include "kernels.h"

namespace emulated {

/// False if `name`, as the compiler writes it, is not one of them.
bool defined_product(const std::string& name, Kernel& kernel);

}  // namespace emulated
