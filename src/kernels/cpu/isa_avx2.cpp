// AVX2 and FMA: a vector is half a step, 8 half-groups. The halves are summed one after the other, two tokens at a
// time, which is what 16 registers hold.
#include <immintrin.h>

#include "kernels/cpu/biased_step.h"
#include "kernels/cpu/loops.h"

namespace cake_moe::cpu {
namespace {

constexpr int kHalfBytes = kStepBytes / 2;
constexpr int kHalfLanes = kLanes / 2;

// Twice the value of the low nibble of each byte; unsigned codes carry kCodeBias.
__m256i signed_codes() {
  return _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
}
__m256i biased_codes() { return _mm256_add_epi8(signed_codes(), _mm256_set1_epi8(kCodeBias)); }
__m256i low_nibbles(__m256i bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(15)); }
__m256i high_nibbles(__m256i bytes) { return low_nibbles(_mm256_srli_epi16(bytes, 4)); }
__m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
void store(void* p, __m256i x) { _mm256_store_si256(static_cast<__m256i*>(p), x); }

// Sums of the products of 4 neighbouring bytes: a unsigned up to 24, b signed up to 12.
__m256i dot(__m256i a_even, __m256i b_even, __m256i a_odd, __m256i b_odd) {
  const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(a_even, b_even), _mm256_maddubs_epi16(a_odd, b_odd));
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

__m256 decode_scales(const uint8_t* codes) {
  const __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi32(0x7F));
  const __m256i sign = _mm256_slli_epi32(_mm256_andnot_si256(_mm256_set1_epi32(0x7F), code), 24);
  const __m256i normal = _mm256_add_epi32(_mm256_slli_epi32(magnitude, 20), _mm256_set1_epi32(120 << 23));
  const __m256 subnormal = _mm256_mul_ps(_mm256_cvtepi32_ps(magnitude), _mm256_set1_ps(0.001953125f));
  const __m256i tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), magnitude);
  const __m256i nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7F));
  __m256i value = _mm256_blendv_epi8(normal, _mm256_castps_si256(subnormal), tiny);
  value = _mm256_or_si256(value, _mm256_and_si256(nan, _mm256_set1_epi32(0x7FFFFFFF)));
  return _mm256_castsi256_ps(_mm256_or_si256(value, sign));
}

// Four of the eight scales, 0..3 or 4..7, each twice: for both half-groups of its group.
__m256 twice(__m256 scales, int half) {
  const int g = 4 * half;
  return _mm256_permutevar8x32_ps(scales, _mm256_setr_epi32(g, g, g + 1, g + 1, g + 2, g + 2, g + 3, g + 3));
}

struct Avx2 {
  using Step = BiasedStep;

  static void unpack(const uint8_t* packed, const uint8_t* scales, Step& step) {
    const __m256 groups = decode_scales(scales);
    const __m256i bias = _mm256_set1_epi8(kCodeBias);
    for (int half = 0; half < 2; ++half) {
      const __m256i bytes = load(packed + half * kHalfBytes);
      const __m256i even = _mm256_shuffle_epi8(signed_codes(), low_nibbles(bytes));
      const __m256i odd = _mm256_shuffle_epi8(signed_codes(), high_nibbles(bytes));
      store(step.even + half * kHalfBytes, even);
      store(step.odd + half * kHalfBytes, odd);
      store(step.start + half * kHalfLanes, _mm256_sub_epi32(_mm256_setzero_si256(), dot(bias, even, bias, odd)));
      _mm256_store_ps(step.scale + half * kHalfLanes, twice(groups, half));
    }
  }

  // Lanes of one half of the steps, for kTokens tokens from the first one of x.
  template <class Shape, int kTokens>
  static void half_sums(const uint8_t* rows, const uint8_t* scales, const Step (*x)[kBlockTokens], int token, int half,
                        __m256 (&acc)[kTokens][kQuadRows]) {
    for (int t = 0; t < kTokens; ++t) {
      for (int q = 0; q < kQuadRows; ++q) acc[t][q] = _mm256_setzero_ps();
    }
    for (int s = 0; s < Shape::kSteps; ++s) {
      const uint8_t* chunk = scales + (2 * s + half) * kScaleChunkBytes;  // a half has as many groups as a chunk
      prefetch(chunk + Shape::kScalesAhead);
      const __m256 rows_01 = decode_scales(chunk), rows_23 = decode_scales(chunk + 2 * kQuadGroups);
      for (int q = 0; q < kQuadRows; ++q) {
        const uint8_t* row = rows + q * kQuads * Shape::kRowBytes + s * kStepBytes + half * kHalfBytes;
        if (half == 0) prefetch(row + Shape::kWeightsAhead);
        const __m256i bytes = load(row);
        const __m256i even = _mm256_shuffle_epi8(biased_codes(), low_nibbles(bytes));
        const __m256i odd = _mm256_shuffle_epi8(biased_codes(), high_nibbles(bytes));
        const __m256 scale = twice(q < 2 ? rows_01 : rows_23, q % 2);
        for (int t = 0; t < kTokens; ++t) {
          const Step& step = x[s][token + t];
          const __m256i sum =
              _mm256_add_epi32(load(step.start + half * kHalfLanes),
                               dot(even, load(step.even + half * kHalfBytes), odd, load(step.odd + half * kHalfBytes)));
          const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_load_ps(step.scale + half * kHalfLanes));
          acc[t][q] = _mm256_fmadd_ps(scaled, scale, acc[t][q]);
        }
      }
    }
  }

  // sums[t][i]: 4 lane sums of row 2i and 4 of row 2i + 1.
  template <class Shape, int kTokens>
  static void sum_to_four(const uint8_t* rows, const uint8_t* scales, const Step (*x)[kBlockTokens], int token,
                          __m256 (*sums)[2]) {
    __m256 low[kTokens][kQuadRows], high[kTokens][kQuadRows];
    half_sums<Shape, kTokens>(rows, scales, x, token, 0, low);
    half_sums<Shape, kTokens>(rows, scales, x, token, 1, high);
    for (int t = 0; t < kTokens; ++t) {
      for (int i = 0; i < 2; ++i) {
        const __m256 a = _mm256_add_ps(low[t][2 * i], high[t][2 * i]);
        const __m256 b = _mm256_add_ps(low[t][2 * i + 1], high[t][2 * i + 1]);
        sums[t][i] = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
      }
    }
  }

  template <class Shape, int kTokens>
  static void quad(const uint8_t* rows, const uint8_t* scales, const Step (*x)[kBlockTokens], float* out) {
    __m256 sums[kTokens][2];
    for (int t = 0; t + 1 < kTokens; t += 2) sum_to_four<Shape, 2>(rows, scales, x, t, sums + t);
    if constexpr (kTokens % 2 == 1) sum_to_four<Shape, 1>(rows, scales, x, kTokens - 1, sums + kTokens - 1);
    for (int i = 0; i < 2; ++i) {
      __m256 two[2];
      for (int pair = 0; pair < 2; ++pair) {
        const __m256 a = sums[2 * pair < kTokens ? 2 * pair : kTokens - 1][i];
        const __m256 b = sums[2 * pair + 1 < kTokens ? 2 * pair + 1 : kTokens - 1][i];
        two[pair] = _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xEE));
      }
      const __m256 sum =
          _mm256_add_ps(_mm256_shuffle_ps(two[0], two[1], 0x88), _mm256_shuffle_ps(two[0], two[1], 0xDD));
      _mm256_store_ps(out + i * 2 * kBlockTokens, _mm256_mul_ps(sum, _mm256_set1_ps(0.25f)));
    }
  }
};

}  // namespace

const Kernels kAvx2Kernels = make_kernels<Avx2>();

}  // namespace cake_moe::cpu
