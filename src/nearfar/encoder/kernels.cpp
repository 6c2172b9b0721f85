// Attention inside each of many short texts, forward and backward, and dropout: what training on a CPU spends on
// small operators. Built by kernels.py when it is first wanted; attention.py and dropout.py say what is computed, and
// compute it without this file too.
//
// Tensors are [tokens, heads, D], texts end to end. A text's scores are never in memory: they are made row by row, and
// again in the backward pass, from the logarithm of each row's sum. All arithmetic is in float.

#include <algorithm>
#include <cmath>
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

inline void store(float &place, float x) { place = x; }
inline void store(bfloat &place, float x) {  // to nearest, ties to even, as torch rounds
    uint32_t wide;
    std::memcpy(&wide, &x, 4);
    place.bits = uint16_t((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
}

// e^x for x <= 0, to float precision: 2^whole * e^rest, |rest| <= log(2) / 2. In plain arithmetic, so that loops over it
// become vector instructions. NaN stays NaN.
inline float exponential(float x) {
    float bounded = std::max(x, -87.0f);
    float whole = std::nearbyint(bounded * 1.44269504f);
    float rest = bounded - whole * 0.693359375f + whole * 2.12194440e-4f;
    float power = 1.0f / 5040;
    power = power * rest + 1.0f / 720;
    power = power * rest + 1.0f / 120;
    power = power * rest + 1.0f / 24;
    power = power * rest + 1.0f / 6;
    power = power * rest + 0.5f;
    power = power * rest + 1.0f;
    power = power * rest + 1.0f;
    int32_t exponent = (int32_t(whole) + 127) << 23;
    float scale;
    std::memcpy(&scale, &exponent, 4);
    return power * scale + 0.0f * x;
}

// One head of one text: where its first token's numbers are, and how far on the next token's are.
template <typename T> struct Rows {
    T *first;
    int64_t stride;
    T *operator[](int token) const { return first + token * stride; }
};

// Of a row of random bits: what each probability is multiplied with, 0 or `scale`.
template <int W> inline void factors(const int16_t *bits, int length, int threshold, float scale, float *out) {
    if (bits == nullptr) {
        for (int j = 0; j < W; j++) out[j] = 1.0f;
        return;
    }
    for (int j = 0; j < length; j++) out[j] = bits[j] >= threshold ? scale : 0.0f;
    for (int j = length; j < W; j++) out[j] = 0.0f;
}

template <typename T, int D, int W> void transpose(Rows<const T> rows, int length, float (*out)[W]) {
    for (int j = 0; j < length; j++)
        for (int d = 0; d < D; d++) out[d][j] = load(rows[j][d]);
    for (int d = 0; d < D; d++)
        for (int j = length; j < W; j++) out[d][j] = 0.0f;
}

// Dot products of one vector with all columns.
template <int D, int W> inline void products(const float *vector, const float (*columns)[W], float *out) {
    float sums[W] = {};
    for (int d = 0; d < D; d++)
        for (int j = 0; j < W; j++) sums[j] += vector[d] * columns[d][j];
    for (int j = 0; j < W; j++) out[j] = sums[j];
}

template <typename T, int D, int W>
void forward(Rows<const T> q, Rows<const T> k, Rows<const T> v, Rows<T> out, float *log_sums, int64_t heads,
             const int16_t *bits, int length, float scaling, int threshold, float scale) {
    alignas(64) float keys[D][W], values[W][D], query[D], shares[W], kept[W];
    transpose<T, D, W>(k, length, keys);
    for (int j = 0; j < length; j++)
        for (int d = 0; d < D; d++) values[j][d] = load(v[j][d]);
    for (int i = 0; i < length; i++) {
        for (int d = 0; d < D; d++) query[d] = load(q[i][d]) * scaling;
        products<D, W>(query, keys, shares);
        float most = shares[0];
        for (int j = 1; j < length; j++) most = std::max(most, shares[j]);
        for (int j = 0; j < W; j++) shares[j] = exponential(shares[j] - most);
        for (int j = length; j < W; j++) shares[j] = 0.0f;
        float sum = 0.0f;
        for (int j = 0; j < W; j++) sum += shares[j];
        log_sums[i * heads] = most + std::log(sum);
        factors<W>(bits == nullptr ? nullptr : bits + int64_t(i) * length, length, threshold, scale, kept);
        float mixed[D] = {};
        for (int j = 0; j < length; j++) {
            float share = shares[j] * kept[j];
            for (int d = 0; d < D; d++) mixed[d] += share * values[j][d];
        }
        for (int d = 0; d < D; d++) store(out[i][d], mixed[d] / sum);
    }
}

template <typename T, int D, int W>
void backward(Rows<const T> q, Rows<const T> k, Rows<const T> v, Rows<const T> slope, const float *log_sums,
              int64_t heads, Rows<T> of_q, Rows<T> of_k, Rows<T> of_v, const int16_t *bits, int length, float scaling,
              int threshold, float scale) {
    alignas(64) float keys[D][W], values[D][W], rows[W][D], of_keys[W][D], of_values[W][D];
    alignas(64) float query[D], above[D], shares[W], of_shares[W], kept[W];
    transpose<T, D, W>(k, length, keys);
    transpose<T, D, W>(v, length, values);
    for (int j = 0; j < length; j++)
        for (int d = 0; d < D; d++) rows[j][d] = load(k[j][d]), of_keys[j][d] = of_values[j][d] = 0.0f;
    for (int i = 0; i < length; i++) {
        for (int d = 0; d < D; d++) query[d] = load(q[i][d]) * scaling, above[d] = load(slope[i][d]);
        products<D, W>(query, keys, shares);
        products<D, W>(above, values, of_shares);
        for (int j = 0; j < W; j++) shares[j] = exponential(std::min(shares[j] - log_sums[i * heads], 0.0f));
        for (int j = length; j < W; j++) shares[j] = 0.0f;
        factors<W>(bits == nullptr ? nullptr : bits + int64_t(i) * length, length, threshold, scale, kept);
        float mean = 0.0f;
        for (int j = 0; j < W; j++) mean += shares[j] * kept[j] * of_shares[j];
        for (int j = 0; j < W; j++) {
            of_shares[j] = shares[j] * (kept[j] * of_shares[j] - mean);  // now of the scores
            shares[j] *= kept[j];
        }
        float of_query[D] = {};
        for (int j = 0; j < length; j++)
            for (int d = 0; d < D; d++) {
                of_values[j][d] += shares[j] * above[d];
                of_keys[j][d] += of_shares[j] * query[d];
                of_query[d] += of_shares[j] * rows[j][d];
            }
        for (int d = 0; d < D; d++) store(of_q[i][d], of_query[d] * scaling);
    }
    for (int j = 0; j < length; j++)
        for (int d = 0; d < D; d++) store(of_k[j][d], of_keys[j][d]), store(of_v[j][d], of_values[j][d]);
}

// The batch: text n has the tokens starts[n] .. starts[n + 1] - 1, and its random bits begin at places[n] * heads.
struct Batch {
    const int64_t *starts, *places;
    int64_t texts, heads;
    const int16_t *bits;
    float scaling;
    int threshold;
    float scale;
};

template <typename Work> void for_each_head(const Batch &batch, Work work) {
    int64_t all = batch.texts * batch.heads;
#pragma omp parallel for schedule(dynamic, 16)
    for (int64_t one = 0; one < all; one++) {
        int64_t text = one / batch.heads, head = one % batch.heads, start = batch.starts[text];
        int length = int(batch.starts[text + 1] - start);
        const int16_t *bits = nullptr;
        if (batch.bits != nullptr)
            bits = batch.bits + batch.places[text] * batch.heads + head * int64_t(length) * length;
        work(start, head, length, bits);
    }
}

// Call `work` with the width of a row of scores as a constant: the length, rounded up.
template <typename Work> void with_width(int length, Work work) {
    if (length <= 16) work(std::integral_constant<int, 16>());
    else if (length <= 32) work(std::integral_constant<int, 32>());
    else if (length <= 64) work(std::integral_constant<int, 64>());
    else work(std::integral_constant<int, 128>());
}

template <typename T, int D>
void attend(const Batch &batch, const T *q, const T *k, const T *v, T *out, float *log_sums) {
    int64_t stride = batch.heads * D;
    for_each_head(batch, [&](int64_t start, int64_t head, int length, const int16_t *bits) {
        int64_t at = start * stride + head * D;
        with_width(length, [&](auto width) {
            forward<T, D, width.value>({q + at, stride}, {k + at, stride}, {v + at, stride}, {out + at, stride},
                                       log_sums + start * batch.heads + head, batch.heads, bits, length, batch.scaling,
                                       batch.threshold, batch.scale);
        });
    });
}

template <typename T, int D>
void attend_backward(const Batch &batch, const T *q, const T *k, const T *v, const T *slope, const float *log_sums,
                     T *of_q, T *of_k, T *of_v) {
    int64_t stride = batch.heads * D;
    for_each_head(batch, [&](int64_t start, int64_t head, int length, const int16_t *bits) {
        int64_t at = start * stride + head * D;
        with_width(length, [&](auto width) {
            backward<T, D, width.value>({q + at, stride}, {k + at, stride}, {v + at, stride}, {slope + at, stride},
                                        log_sums + start * batch.heads + head, batch.heads, {of_q + at, stride},
                                        {of_k + at, stride}, {of_v + at, stride}, bits, length, batch.scaling,
                                        batch.threshold, batch.scale);
        });
    });
}

template <typename T>
void drop(const T *x, const int16_t *bits, T *out, int64_t count, int threshold, float scale) {
#pragma omp parallel for simd schedule(static) if (count > 32768)
    for (int64_t i = 0; i < count; i++) store(out[i], bits[i] >= threshold ? load(x[i]) * scale : 0.0f);
}

}  // namespace

#define FOR(T, D, NAME)                                                                                               \
    void attend_##NAME##_##D(Batch *batch, T *q, T *k, T *v, T *out, float *log_sums) {                               \
        attend<T, D>(*batch, q, k, v, out, log_sums);                                                                 \
    }                                                                                                                 \
    void attend_backward_##NAME##_##D(Batch *batch, T *q, T *k, T *v, T *slope, float *log_sums, T *of_q, T *of_k,    \
                                      T *of_v) {                                                                      \
        attend_backward<T, D>(*batch, q, k, v, slope, log_sums, of_q, of_k, of_v);                                    \
    }
#define DROP(T, NAME)                                                                                                 \
    void drop_##NAME(T *x, int16_t *bits, T *out, int64_t count, int threshold, float scale) {                        \
        drop<T>(x, bits, out, count, threshold, scale);                                                               \
    }

extern "C" {
FOR(float, 16, float32)
FOR(float, 32, float32)
FOR(float, 64, float32)
FOR(bfloat, 16, bfloat16)
FOR(bfloat, 32, bfloat16)
FOR(bfloat, 64, bfloat16)
DROP(float, float32)
DROP(bfloat, bfloat16)
}
