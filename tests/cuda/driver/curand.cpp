//! cuRAND: candle makes a generator with each device, and this server draws from none.

#include <curand.h>

extern "C" {

curandStatus_t curandCreateGenerator(curandGenerator_t* generator, curandRngType_t) {
    *generator = nullptr;
    return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandDestroyGenerator(curandGenerator_t) { return CURAND_STATUS_SUCCESS; }
curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t, unsigned long long) {
    return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandSetGeneratorOffset(curandGenerator_t, unsigned long long) { return CURAND_STATUS_SUCCESS; }
curandStatus_t curandSetStream(curandGenerator_t, cudaStream_t) { return CURAND_STATUS_SUCCESS; }

}  // extern "C"
