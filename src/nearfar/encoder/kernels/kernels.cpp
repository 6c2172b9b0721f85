// CPU kernels for training: attention within each of many short texts, and dropout.
// build.py compiles this file at the first use, __init__.py calls it. attention.py and dropout.py, one folder up,
// document what is computed, and compute the same without this file.
//
// Attention tensors are [tokens, heads, D], with the texts concatenated. The score matrix of a text is never stored:
// scores are computed a few rows at a time, and computed again in the backward pass from two numbers saved per row: the
// largest score, and 1 / the sum of e^(score - largest score). All arithmetic is in float.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

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

// Vectors of 16 lanes: one AVX-512 register each.
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

// The rows of one head of one text: a pointer to the first token's row, and the distance between rows.
template <typename T> struct Rows {
    T *first;
    int64_t stride;
    T *operator[](int token) const { return first + token * stride; }
};

// Transpose [length, D] to [D, W], padded with zeros after the last token.
template <typename T, int D, int W> void transpose(Rows<const T> rows, int length, float (*out)[W]) {
    std::memset(out, 0, sizeof(float) * D * W);
    for (int j = 0; j < length; j++)
        for (int d = 0; d < D; d++) out[d][j] = load(rows[j][d]);
}

// Number of rows computed at a time, so that each loaded column is used several times: as many as fit in registers.
template <int W> constexpr int ROWS_AT_A_TIME = W <= 64 ? 4 : 2;

// Dot products of R vectors with all W columns.
template <int R, int D, int W> inline void products(const float (*vectors)[D], const float (*columns)[W], Floats *out) {
    constexpr int N = W / LANES;
    Floats sums[R][N] = {};
    for (int d = 0; d < D; d++) {
        const Floats *column = reinterpret_cast<const Floats *>(columns[d]);
        for (int r = 0; r < R; r++)
            for (int n = 0; n < N; n++) sums[r][n] += vectors[r][d] * column[n];
    }
    std::memcpy(out, sums, sizeof sums);
}

// The additive mask of a row of scores: 0 for the tokens of the text, -1e30 for padding.
template <int W> inline void fill_padding_mask(int length, Floats *out) {
    for (int j = 0; j < W; j++) out[j / LANES][j % LANES] = j < length ? 0.0f : -1e30f;
}

// Dropout mask: the 16 random bits of an element are a function of the seed and the element's index (dropout_mask.py).
struct Mask {
    uint64_t seed;
    int threshold;
    float scale;

    // The bits of LANES elements, four per word, starting with this word.
    Shorts bits(uint64_t word) const {
        Words z = (word + 1 + Words{0, 1, 2, 3}) * 0x9e3779b97f4a7c15u + seed;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        Shorts shorts;
        std::memcpy(&shorts, &z, sizeof shorts);
        return shorts;
    }
    Floats apply(Floats x, uint64_t word) const {
        return __builtin_convertvector(bits(word), Ints) >= threshold ? x * scale : Floats{};
    }
    bool drops() const { return threshold > INT16_MIN; }
};

template <int N> inline void drop_row(const Mask &mask, uint64_t word, Floats *row) {
    for (int n = 0; n < N; n++) row[n] = mask.apply(row[n], word + n * (LANES / 4));
}

// Text n has the tokens starts[n] .. starts[n + 1] - 1. The attention weights of a token and a head are row
// token * heads + head, which uses `words_per_row` words of random bits.
struct Batch {
    const int64_t *starts;
    int64_t texts, heads;
    float scaling;
    Mask mask;
    uint64_t words_per_row;
};

// Template parameters: T element type, D head dimension, W row width of the scores (the length, rounded up).
// `row` is the row of the text's first token and this head.

template <typename T, int D, int W>
void forward(const Batch &batch, int64_t row, int length, Rows<const T> q, Rows<const T> k, Rows<const T> v,
             Rows<T> out, float *softmax_stats) {
    constexpr int N = W / LANES, M = D / LANES, R = ROWS_AT_A_TIME<W>;
    alignas(64) float keys[D][W], queries[R][D];
    Floats values[W][M], scores[R][N], padding_mask[N];
    fill_padding_mask<W>(length, padding_mask);
    transpose<T, D, W>(k, length, keys);
    for (int j = 0; j < length; j++) load_row<T, D>(v[j], values[j]);
    std::memset(queries, 0, sizeof queries);
    for (int i = 0; i < length; i += R) {
        int rows = std::min(R, length - i);
        for (int r = 0; r < rows; r++)
            for (int d = 0; d < D; d++) queries[r][d] = load(q[i + r][d]) * batch.scaling;
        products<R, D, W>(queries, keys, scores[0]);
        float inverse_sums[R];
        for (int r = 0; r < rows; r++) {
            Floats largest = scores[r][0] + padding_mask[0], total = {};
            for (int n = 1; n < N; n++) largest = lane_max(largest, scores[r][n] + padding_mask[n]);
            float shift = max(largest);
            for (int n = 0; n < N; n++) total += scores[r][n] = exponential(scores[r][n] + padding_mask[n] - shift);
            inverse_sums[r] = 1.0f / sum(total);
            int64_t index = row + (i + r) * batch.heads;
            softmax_stats[2 * index] = shift;
            softmax_stats[2 * index + 1] = inverse_sums[r];
            if (batch.mask.drops()) drop_row<N>(batch.mask, index * batch.words_per_row, scores[r]);
        }
        Floats outputs[R][M] = {};
        for (int j = 0; j < length; j++)
            for (int r = 0; r < R; r++) {
                float weight = reinterpret_cast<float *>(scores[r])[j];
                for (int m = 0; m < M; m++) outputs[r][m] += weight * values[j][m];
            }
        for (int r = 0; r < rows; r++) store_row<T, D>(outputs[r], inverse_sums[r], out[i + r]);
    }
}

template <typename T, int D, int W>
void backward(const Batch &batch, int64_t row, int length, Rows<const T> q, Rows<const T> k, Rows<const T> v,
              Rows<const T> grad_output, const float *softmax_stats, Rows<T> grad_q, Rows<T> grad_k, Rows<T> grad_v) {
    constexpr int N = W / LANES, M = D / LANES, R = ROWS_AT_A_TIME<W>;
    alignas(64) float keys[D][W], values[D][W], queries[R][D], grad_rows[R][D];
    Floats rows_of_k[W][M], grad_keys[W][M], grad_values[W][M], probs[R][N], grad_scores[R][N], padding_mask[N];
    fill_padding_mask<W>(length, padding_mask);
    transpose<T, D, W>(k, length, keys);
    transpose<T, D, W>(v, length, values);
    for (int j = 0; j < length; j++) load_row<T, D>(k[j], rows_of_k[j]);
    std::memset(grad_keys, 0, sizeof grad_keys);
    std::memset(grad_values, 0, sizeof grad_values);
    for (int i = 0; i < length; i += R) {
        int rows = std::min(R, length - i);
        if (rows < R) {  // clear the rows of the previous iteration
            std::memset(queries, 0, sizeof queries);
            std::memset(grad_rows, 0, sizeof grad_rows);
        }
        for (int r = 0; r < rows; r++)
            for (int d = 0; d < D; d++)
                queries[r][d] = load(q[i + r][d]) * batch.scaling, grad_rows[r][d] = load(grad_output[i + r][d]);
        products<R, D, W>(queries, keys, probs[0]);
        products<R, D, W>(grad_rows, values, grad_scores[0]);
        for (int r = 0; r < R; r++) {
            if (r >= rows) {
                std::memset(probs[r], 0, sizeof probs[r]);
                std::memset(grad_scores[r], 0, sizeof grad_scores[r]);
                continue;
            }
            int64_t index = row + (i + r) * batch.heads;
            float shift = softmax_stats[2 * index], inverse_sum = softmax_stats[2 * index + 1];
            Floats dropped[N];
            for (int n = 0; n < N; n++)
                dropped[n] = probs[r][n] = exponential(probs[r][n] + padding_mask[n] - shift) * inverse_sum;
            if (batch.mask.drops()) drop_row<N>(batch.mask, index * batch.words_per_row, dropped);
            Floats total = {};
            for (int n = 0; n < N; n++) total += dropped[n] * grad_scores[r][n];
            float mean = sum(total);
            for (int n = 0; n < N; n++) {
                grad_scores[r][n] = dropped[n] * grad_scores[r][n] - probs[r][n] * mean;  // gradient of the scores
                probs[r][n] = dropped[n];
            }
        }
        Floats grad_queries[R][M] = {};
        for (int j = 0; j < length; j++)
            for (int r = 0; r < R; r++) {
                float weight = reinterpret_cast<float *>(probs[r])[j];
                float grad_score = reinterpret_cast<float *>(grad_scores[r])[j];
                const Floats *query = reinterpret_cast<const Floats *>(queries[r]);
                const Floats *grad_row = reinterpret_cast<const Floats *>(grad_rows[r]);
                for (int m = 0; m < M; m++) {
                    grad_values[j][m] += weight * grad_row[m];
                    grad_keys[j][m] += grad_score * query[m];
                    grad_queries[r][m] += grad_score * rows_of_k[j][m];
                }
            }
        for (int r = 0; r < rows; r++) store_row<T, D>(grad_queries[r], batch.scaling, grad_q[i + r]);
    }
    for (int j = 0; j < length; j++) {
        store_row<T, D>(grad_keys[j], 1.0f, grad_k[j]);
        store_row<T, D>(grad_values[j], 1.0f, grad_v[j]);
    }
}

// Call `work(row, length)` for each head of each text, in parallel.
template <typename Work> void for_each_head(const Batch &batch, Work work) {
    int64_t tasks = batch.texts * batch.heads;
#pragma omp parallel for schedule(dynamic, 16)
    for (int64_t task = 0; task < tasks; task++) {
        int64_t text = task / batch.heads, head = task % batch.heads, start = batch.starts[text];
        work(start * batch.heads + head, int(batch.starts[text + 1] - start));
    }
}

// Call `work` with the row width of the scores, the length rounded up, as a compile-time constant.
template <typename Work> void with_width(int length, Work work) {
    if (length <= 16) work(std::integral_constant<int, 16>());
    else if (length <= 32) work(std::integral_constant<int, 32>());
    else if (length <= 64) work(std::integral_constant<int, 64>());
    else work(std::integral_constant<int, 128>());
}

template <typename T, int D>
void attend(const Batch &batch, const T *q, const T *k, const T *v, T *out, float *softmax_stats) {
    int64_t stride = batch.heads * D;
    for_each_head(batch, [&](int64_t row, int length) {
        int64_t offset = row * D;
        with_width(length, [&](auto width) {
            forward<T, D, width.value>(batch, row, length, {q + offset, stride}, {k + offset, stride},
                                       {v + offset, stride}, {out + offset, stride}, softmax_stats);
        });
    });
}

template <typename T, int D>
void attend_backward(const Batch &batch, const T *q, const T *k, const T *v, const T *grad_output,
                     const float *softmax_stats, T *grad_q, T *grad_k, T *grad_v) {
    int64_t stride = batch.heads * D;
    for_each_head(batch, [&](int64_t row, int length) {
        int64_t offset = row * D;
        with_width(length, [&](auto width) {
            backward<T, D, width.value>(batch, row, length, {q + offset, stride}, {k + offset, stride},
                                        {v + offset, stride}, {grad_output + offset, stride}, softmax_stats,
                                        {grad_q + offset, stride}, {grad_k + offset, stride},
                                        {grad_v + offset, stride});
        });
    });
}

template <typename T> void drop(const Mask &mask, const T *x, T *out, int64_t count) {
    auto drop_lanes = [&](const T *input, uint64_t word, T *output) {
        Floats elements;
        load_row<T, LANES>(input, &elements);
        elements = mask.apply(elements, word);
        store_row<T, LANES>(&elements, 1.0f, output);
    };
    int64_t whole = count / LANES * LANES, rest = count - whole;
#pragma omp parallel for schedule(static) if (count > 32768)
    for (int64_t start = 0; start < whole; start += LANES) drop_lanes(x + start, start / 4, out + start);
    T input[LANES] = {}, output[LANES];
    std::copy_n(x + whole, rest, input);
    drop_lanes(input, whole / 4, output);
    std::copy_n(output, rest, out + whole);
}

}  // namespace

// The C functions that __init__.py calls: one for each element type and head dimension.
#define ATTENTION(T, D, NAME)                                                                                         \
    void attend_##NAME##_##D(Batch *batch, T *q, T *k, T *v, T *out, float *softmax_stats) {                          \
        attend<T, D>(*batch, q, k, v, out, softmax_stats);                                                            \
    }                                                                                                                 \
    void attend_backward_##NAME##_##D(Batch *batch, T *q, T *k, T *v, T *grad_output, float *softmax_stats,           \
                                      T *grad_q, T *grad_k, T *grad_v) {                                              \
        attend_backward<T, D>(*batch, q, k, v, grad_output, softmax_stats, grad_q, grad_k, grad_v);                   \
    }
#define DROPOUT(T, NAME)                                                                                              \
    void drop_##NAME(Mask *mask, T *x, T *out, int64_t count) { drop<T>(*mask, x, out, count); }

extern "C" {
ATTENTION(float, 16, float32)
ATTENTION(float, 32, float32)
ATTENTION(float, 64, float32)
ATTENTION(bfloat, 16, bfloat16)
ATTENTION(bfloat, 32, bfloat16)
ATTENTION(bfloat, 64, bfloat16)
DROPOUT(float, float32)
DROPOUT(bfloat, bfloat16)
}
