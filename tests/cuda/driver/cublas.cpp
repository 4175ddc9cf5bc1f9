//! cuBLAS, as far as candle calls it: products of matrices, by the definition.

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "driver.h"

struct cublasContext {
    CUstream stream;
};

using namespace emulated;

namespace {

struct Matrix {
    uintptr_t address;
    cudaDataType type;
    int leading;
    long long stride;
    bool transposed;

    size_t width() const { return type == CUDA_R_32F ? 4 : 2; }

    /// All that a batch of `rows` and `columns` (as the product sees them) reaches.
    void check(const char* who, int rows, int columns, int batch) const {
        const int columns_here = transposed ? rows : columns, rows_here = transposed ? columns : rows;
        if (leading < rows_here) broken("cuBLAS: %s has a leading dimension of %d, and %d rows", who, leading, rows_here);
        const long long last = (batch - 1) * stride + (columns_here - 1ll) * leading + rows_here;
        check_reachable(who, address, size_t(last) * width());
        if (address % width() != 0) broken("cuBLAS: %s is not aligned", who);
    }

    uintptr_t at(int row, int column, int of_batch) const {
        const long long index = of_batch * stride + (transposed ? column + 1ll * row * leading : row + 1ll * column * leading);
        return address + size_t(index) * width();
    }

    float get(int row, int column, int of_batch) const {
        const uintptr_t from = at(row, column, of_batch);
        if (type == CUDA_R_16F) return __half2float(*reinterpret_cast<const __half*>(from));
        if (type == CUDA_R_16BF) return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(from));
        return *reinterpret_cast<const float*>(from);
    }

    void set(int row, int column, int of_batch, float number) const {
        const uintptr_t to = at(row, column, of_batch);
        if (type == CUDA_R_16F) *reinterpret_cast<__half*>(to) = __float2half_rn(number);
        else if (type == CUDA_R_16BF) *reinterpret_cast<__nv_bfloat16*>(to) = __float2bfloat16_rn(number);
        else *reinterpret_cast<float*>(to) = number;
    }
};

struct Product {
    Matrix a, b, c;
    int rows, columns, depth, batch;
    float alpha, beta;

    void check() const {
        a.check("the first factor", rows, depth, batch);
        b.check("the second factor", depth, columns, batch);
        c.check("the product", rows, columns, batch);
    }

    void compute() const {
        runs_on_device("a product of matrices");
        std::vector<float> row(static_cast<size_t>(depth));
        for (int one = 0; one < batch; one++) {
            for (int i = 0; i < rows; i++) {
                for (int k = 0; k < depth; k++) row[size_t(k)] = a.get(i, k, one);
                for (int j = 0; j < columns; j++) {
                    float sum = 0;
                    for (int k = 0; k < depth; k++) sum += row[size_t(k)] * b.get(k, j, one);
                    const float before = beta == 0 ? 0 : beta * c.get(i, j, one);
                    c.set(i, j, one, alpha * sum + before);
                }
            }
        }
        runs_on_device(nullptr);
    }
};

bool known(cudaDataType type) { return type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF; }

}  // namespace

extern "C" {

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
    *handle = new cublasContext{nullptr};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
    handle->stream = reinterpret_cast<CUstream>(stream);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t turn_a, cublasOperation_t turn_b,
                                          int m, int n, int k, const void* alpha, const void* a, cudaDataType type_a,
                                          int lda, long long stride_a, const void* b, cudaDataType type_b, int ldb,
                                          long long stride_b, const void* beta, void* c, cudaDataType type_c, int ldc,
                                          long long stride_c, int batch, cublasComputeType_t compute, cublasGemmAlgo_t) {
    Guard guard(lock());
    if (!known(type_a) || !known(type_b) || !known(type_c)) broken("cuBLAS: a product of other types is not emulated");
    if (compute != CUBLAS_COMPUTE_32F) broken("cuBLAS: a product in compute type %d is not emulated", int(compute));
    auto address = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); };
    const Product product = {{address(a), type_a, lda, stride_a, turn_a != CUBLAS_OP_N},
                             {address(b), type_b, ldb, stride_b, turn_b != CUBLAS_OP_N},
                             {address(c), type_c, ldc, stride_c, false},
                             m,
                             n,
                             k,
                             batch,
                             *static_cast<const float*>(alpha),
                             *static_cast<const float*>(beta)};
    product.check();
    enqueue(handle->stream, [product] { product.compute(); });
    return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS"; }
const char* cublasGetStatusString(cublasStatus_t) { return "a status of cuBLAS"; }

}  // extern "C"
