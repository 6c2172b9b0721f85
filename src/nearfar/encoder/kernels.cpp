// What training on a CPU does between products of matrices: attention inside each of many short texts, and dropout.
// Built by kernels.py at its first use; attention.py and dropout.py say what is computed, and compute it without this
// file too.
//
// In attention, tensors are [tokens, heads, D], texts end to end. A text's scores are never in memory: they are made
// row by row, and again in the backward pass, from two numbers that are kept of each row: its largest score, and 1 /
// the sum of e^(score - largest). All arithmetic is in float.

#include <algorithm>
#include <cmath>
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

inline void store(float &place, float x) { place = x; }
inline void store(bfloat &place, float x) {  // to nearest, ties to even, as torch rounds
    uint32_t wide;
    std::memcpy(&wide, &x, 4);
    place.bits = uint16_t((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
}

// 16 numbers that are computed at once; compilers turn it into what vectors the processor has.
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
inline Floats larger(Floats x, Floats y) { return x > y ? x : y; }
inline float most_of(Floats x) {
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++) x[lane] = x[lane] > x[lane + half] ? x[lane] : x[lane + half];
    return x[0];
}

// e^x for x <= 0, to float precision: 2^whole * e^rest, |rest| <= log(2) / 2. NaN stays NaN.
inline Floats exponential(Floats x) {
    Floats bounded = x > -87.0f ? x : Floats{} - 87.0f;
    Ints whole = __builtin_convertvector(bounded * 1.44269504f - 0.5f, Ints);  // towards 0, so to the nearest
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

// One head of one text: where its first token's numbers are, and how far on the next token's are.
template <typename T> struct Rows {
    T *first;
    int64_t stride;
    T *operator[](int token) const { return first + token * stride; }
};

// D numbers as vectors, and back.
template <typename T, int D> inline void load_row(const T *row, Floats *out) {
    alignas(64) float numbers[D];
    for (int d = 0; d < D; d++) numbers[d] = load(row[d]);
    std::memcpy(out, numbers, sizeof numbers);
}
template <typename T, int D> inline void store_row(const Floats *row, float factor, T *out) {
    alignas(64) float numbers[D];
    std::memcpy(numbers, row, sizeof numbers);
    for (int d = 0; d < D; d++) store(out[d], numbers[d] * factor);
}

// The columns of a matrix of tokens, with zeros behind the last token.
template <typename T, int D, int W> void transpose(Rows<const T> rows, int length, float (*out)[W]) {
    std::memset(out, 0, sizeof(float) * D * W);
    for (int j = 0; j < length; j++)
        for (int d = 0; d < D; d++) out[d][j] = load(rows[j][d]);
}

// How many rows are computed together, so that what is read once serves all of them: as many as registers hold.
template <int W> constexpr int TOGETHER = W <= 64 ? 4 : 2;

// Dot products of some vectors with all columns.
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

// What is added to the scores of a row, so that nothing behind the text's end is seen.
template <int W> inline void fill_padding_mask(int length, Floats *out) {
    for (int j = 0; j < W; j++) out[j / LANES][j % LANES] = j < length ? 0.0f : -1e30f;
}

// Dropout: a number's 16 random bits are a function of the seed and of its place (see dropout.py).
struct Mask {
    uint64_t seed;
    int threshold;
    float scale;

    // The bits of LANES numbers, four to a word, from this word on.
    Shorts bits(uint64_t word) const {
        Words z = (word + 1 + Words{0, 1, 2, 3}) * 0x9e3779b97f4a7c15u + seed;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        Shorts several;
        std::memcpy(&several, &z, sizeof several);
        return several;
    }
    Floats dropped(Floats x, uint64_t word) const {
        return __builtin_convertvector(bits(word), Ints) >= threshold ? x * scale : Floats{};
    }
    bool drops() const { return threshold > INT16_MIN; }
};

template <int N> inline void drop_row(const Mask &mask, uint64_t word, Floats *row) {
    for (int n = 0; n < N; n++) row[n] = mask.dropped(row[n], word + n * (LANES / 4));
}

// Text n has the tokens starts[n] .. starts[n + 1] - 1. The scores of a token and a head are row token * heads + head,
// which has `words` words of random bits.
struct Batch {
    const int64_t *starts;
    int64_t texts, heads;
    float scaling;
    Mask mask;
    uint64_t words;
};

template <typename T, int D, int W>
void forward(const Batch &batch, int64_t row, int length, Rows<const T> q, Rows<const T> k, Rows<const T> v,
             Rows<T> out, float *softmax_stats) {
    constexpr int N = W / LANES, M = D / LANES, R = TOGETHER<W>;
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
            Floats most = scores[r][0] + padding_mask[0], total = {};
            for (int n = 1; n < N; n++) most = larger(most, scores[r][n] + padding_mask[n]);
            float shift = most_of(most);
            for (int n = 0; n < N; n++) total += scores[r][n] = exponential(scores[r][n] + padding_mask[n] - shift);
            inverse_sums[r] = 1.0f / sum(total);
            int64_t place = row + (i + r) * batch.heads;
            softmax_stats[2 * place] = shift;
            softmax_stats[2 * place + 1] = inverse_sums[r];
            if (batch.mask.drops()) drop_row<N>(batch.mask, place * batch.words, scores[r]);
        }
        Floats mixed[R][M] = {};
        for (int j = 0; j < length; j++)
            for (int r = 0; r < R; r++) {
                float share = reinterpret_cast<float *>(scores[r])[j];
                for (int m = 0; m < M; m++) mixed[r][m] += share * values[j][m];
            }
        for (int r = 0; r < rows; r++) store_row<T, D>(mixed[r], inverse_sums[r], out[i + r]);
    }
}

template <typename T, int D, int W>
void backward(const Batch &batch, int64_t row, int length, Rows<const T> q, Rows<const T> k, Rows<const T> v,
              Rows<const T> grad_output, const float *softmax_stats, Rows<T> grad_q, Rows<T> grad_k, Rows<T> grad_v) {
    constexpr int N = W / LANES, M = D / LANES, R = TOGETHER<W>;
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
        if (rows < R) {  // then there are none of the last time's left
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
            int64_t place = row + (i + r) * batch.heads;
            float shift = softmax_stats[2 * place], part = softmax_stats[2 * place + 1];
            Floats dropped[N];
            for (int n = 0; n < N; n++)
                dropped[n] = probs[r][n] = exponential(probs[r][n] + padding_mask[n] - shift) * part;
            if (batch.mask.drops()) drop_row<N>(batch.mask, place * batch.words, dropped);
            Floats total = {};
            for (int n = 0; n < N; n++) total += dropped[n] * grad_scores[r][n];
            float mean = sum(total);
            for (int n = 0; n < N; n++) {
                grad_scores[r][n] = dropped[n] * grad_scores[r][n] - probs[r][n] * mean;  // now of the scores
                probs[r][n] = dropped[n];
            }
        }
        Floats grad_queries[R][M] = {};
        for (int j = 0; j < length; j++)
            for (int r = 0; r < R; r++) {
                float share = reinterpret_cast<float *>(probs[r])[j];
                float grad_score = reinterpret_cast<float *>(grad_scores[r])[j];
                const Floats *query = reinterpret_cast<const Floats *>(queries[r]);
                const Floats *from = reinterpret_cast<const Floats *>(grad_rows[r]);
                for (int m = 0; m < M; m++) {
                    grad_values[j][m] += share * from[m];
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

template <typename Work> void for_each_head(const Batch &batch, Work work) {
    int64_t all = batch.texts * batch.heads;
#pragma omp parallel for schedule(dynamic, 16)
    for (int64_t one = 0; one < all; one++) {
        int64_t text = one / batch.heads, head = one % batch.heads, start = batch.starts[text];
        work(start * batch.heads + head, int(batch.starts[text + 1] - start));
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
void attend(const Batch &batch, const T *q, const T *k, const T *v, T *out, float *softmax_stats) {
    int64_t stride = batch.heads * D;
    for_each_head(batch, [&](int64_t row, int length) {
        int64_t at = row * D;
        with_width(length, [&](auto width) {
            forward<T, D, width.value>(batch, row, length, {q + at, stride}, {k + at, stride}, {v + at, stride},
                                       {out + at, stride}, softmax_stats);
        });
    });
}

template <typename T, int D>
void attend_backward(const Batch &batch, const T *q, const T *k, const T *v, const T *grad_output, const float *softmax_stats,
                     T *grad_q, T *grad_k, T *grad_v) {
    int64_t stride = batch.heads * D;
    for_each_head(batch, [&](int64_t row, int length) {
        int64_t at = row * D;
        with_width(length, [&](auto width) {
            backward<T, D, width.value>(batch, row, length, {q + at, stride}, {k + at, stride}, {v + at, stride},
                                        {grad_output + at, stride}, softmax_stats, {grad_q + at, stride}, {grad_k + at, stride},
                                        {grad_v + at, stride});
        });
    });
}

template <typename T> void drop(const Mask &mask, const T *x, T *out, int64_t count) {
    auto some = [&](const T *given, uint64_t word, T *found) {
        Floats numbers;
        load_row<T, LANES>(given, &numbers);
        numbers = mask.dropped(numbers, word);
        store_row<T, LANES>(&numbers, 1.0f, found);
    };
    int64_t whole = count / LANES * LANES, rest = count - whole;
#pragma omp parallel for schedule(static) if (count > 32768)
    for (int64_t start = 0; start < whole; start += LANES) some(x + start, start / 4, out + start);
    T given[LANES] = {}, found[LANES];
    std::copy_n(x + whole, rest, given);
    some(given, whole / 4, found);
    std::copy_n(found, rest, out + whole);
}

}  // namespace

#define FOR(T, D, NAME)                                                                                               \
    void attend_##NAME##_##D(Batch *batch, T *q, T *k, T *v, T *out, float *softmax_stats) {                               \
        attend<T, D>(*batch, q, k, v, out, softmax_stats);                                                                 \
    }                                                                                                                 \
    void attend_backward_##NAME##_##D(Batch *batch, T *q, T *k, T *v, T *grad_output, float *softmax_stats, T *grad_q, T *grad_k,    \
                                      T *grad_v) {                                                                      \
        attend_backward<T, D>(*batch, q, k, v, grad_output, softmax_stats, grad_q, grad_k, grad_v);                                    \
    }
#define EACH(T, NAME)                                                                                                 \
    void drop_##NAME(Mask *mask, T *x, T *out, int64_t count) { drop<T>(*mask, x, out, count); }

extern "C" {
FOR(float, 16, float32)
FOR(float, 32, float32)
FOR(float, 64, float32)
FOR(bfloat, 16, bfloat16)
FOR(bfloat, 32, bfloat16)
FOR(bfloat, 64, bfloat16)
EACH(float, float32)
EACH(bfloat, bfloat16)
}
