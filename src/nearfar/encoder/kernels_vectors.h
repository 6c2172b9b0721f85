// Vector arithmetic for kernels.cpp: 16 floats at a time, loaded from and stored to float32 or bfloat16.

#pragma once

#include <cstdint>
#include <cstring>

namespace {

struct bfloat {
    uint16_t bits;
};

inline float load(float x) { return x; }
inline float load(bfloat x) {
    uint32_t wide = uint32_t(x.bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
}

inline void store(float &target, float x) { target = x; }
inline void store(bfloat &target, float x) {  // round to nearest, ties to even, as torch does
    uint32_t wide;
    std::memcpy(&wide, &x, 4);
    target.bits = uint16_t((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
}

// Vectors of 16 lanes, which the compiler maps to the processor's vector registers.
constexpr int LANES = 16;
typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef int16_t Shorts __attribute__((vector_size(2 * LANES)));
typedef uint64_t Words __attribute__((vector_size(2 * LANES)));

inline float sum(Floats x) {
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++) x[lane] += x[lane + half];
    return x[0];
}
inline Floats lane_max(Floats x, Floats y) { return x > y ? x : y; }
inline float max(Floats x) {
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++) x[lane] = x[lane] > x[lane + half] ? x[lane] : x[lane + half];
    return x[0];
}

// e^x for x <= 0, to float precision, as 2^whole * e^rest with |rest| <= log(2) / 2. NaN stays NaN.
inline Floats exponential(Floats x) {
    Floats bounded = x > -87.0f ? x : Floats{} - 87.0f;
    Ints whole = __builtin_convertvector(bounded * 1.44269504f - 0.5f, Ints);  // truncation, so round to nearest
    Floats power = __builtin_convertvector(whole, Floats);
    Floats rest = bounded - power * 0.693359375f + power * 2.12194440e-4f;
    Floats value = rest * (1.0f / 5040) + 1.0f / 720;
    value = value * rest + 1.0f / 120;
    value = value * rest + 1.0f / 24;
    value = value * rest + 1.0f / 6;
    value = value * rest + 0.5f;
    value = value * rest + 1.0f;
    value = value * rest + 1.0f;
    Ints exponent = (whole + 127) << 23;
    Floats scale;
    std::memcpy(&scale, &exponent, sizeof scale);
    return x == x ? value * scale : x;
}

// Load a row of D elements into vectors, and store it multiplied by a factor.
template <typename T, int D> inline void load_row(const T *row, Floats *out) {
    alignas(64) float elements[D];
    for (int d = 0; d < D; d++) elements[d] = load(row[d]);
    std::memcpy(out, elements, sizeof elements);
}
template <typename T, int D> inline void store_row(const Floats *row, float factor, T *out) {
    alignas(64) float elements[D];
    std::memcpy(elements, row, sizeof elements);
    for (int d = 0; d < D; d++) store(out[d], elements[d] * factor);
}

}  // namespace
