// AVX-512 with VNNI: one vector is one step of 64 packed weight bytes, 16 half-groups.
#include <immintrin.h>

// GCC 12's own header initialises its "undefined" vectors with themselves.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "kernels/cpu/biased_step.h"
#include "kernels/cpu/loops.h"

namespace cake_moe::cpu {
namespace {

// Twice the value of the low nibble of each byte; unsigned codes carry kCodeBias.
__m512i signed_codes() {
  return _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
}
__m512i biased_codes() { return _mm512_add_epi8(signed_codes(), _mm512_set1_epi8(kCodeBias)); }
__m512i low_nibbles(__m512i bytes) { return _mm512_and_si512(bytes, _mm512_set1_epi8(15)); }
__m512i high_nibbles(__m512i bytes) { return low_nibbles(_mm512_srli_epi16(bytes, 4)); }

// e4m3 scales, one a 16-bit word, as halves in kScaleUnit: the exponent bias differs, the other bits are the same.
constexpr float kScaleUnit = 256.0f;
__m512i to_half(__m512i code) {
  const __m512i nan = _mm512_set1_epi16(0x7F << 7);
  const __m512i magnitude = _mm512_and_si512(_mm512_slli_epi16(code, 7), nan);
  const __m512i sign = _mm512_and_si512(_mm512_slli_epi16(code, 8), _mm512_set1_epi16(INT16_MIN));
  const __mmask32 is_nan = _mm512_cmpeq_epi16_mask(magnitude, nan);
  return _mm512_mask_mov_epi16(_mm512_or_si512(sign, magnitude), is_nan, _mm512_set1_epi16(INT16_MAX));
}
__m128i load_128(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

// Scales of 4 rows and 8 groups, in kScaleUnit.
struct QuadScales {
  __m512 first, second;  // [4 rows][groups 0..3] and [4 rows][groups 4..7]
};
QuadScales decode_scales(const uint8_t* chunk) {
  const __m256i first = _mm256_castsi128_si256(load_128(chunk));
  const __m512i half =
      to_half(_mm512_cvtepu8_epi16(_mm256_inserti128_si256(first, load_128(chunk + kScaleChunkBytes), 1)));
  return {_mm512_cvtph_ps(_mm512_castsi512_si256(half)), _mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1))};
}

// Every scale of row q twice: lanes 2g and 2g + 1 are the half-groups of group g.
__m512 row_scales(const QuadScales& scales, int q) {
  const int a = 4 * q, b = 16 + 4 * q;
  const __m512i lanes =
      _mm512_setr_epi32(a, a, a + 1, a + 1, a + 2, a + 2, a + 3, a + 3, b, b, b + 1, b + 1, b + 2, b + 2, b + 3, b + 3);
  return _mm512_permutex2var_ps(scales.first, lanes, scales.second);
}

// Lane sums of 4 rows: out[4q..4q+3] = lanes j + (0, 4, 8, 12) of row q, j = 0..3.
__m512 sum_to_four(const __m512 (&acc)[kQuadRows]) {
  __m512 eight[2];
  for (int i = 0; i < 2; ++i) {
    const __m512 a = acc[2 * i], b = acc[2 * i + 1];
    eight[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
  }
  return _mm512_add_ps(_mm512_shuffle_f32x4(eight[0], eight[1], 0x88), _mm512_shuffle_f32x4(eight[0], eight[1], 0xDD));
}

struct Avx512 {
  using Step = BiasedStep;

  static void unpack(const uint8_t* packed, const uint8_t* scales, Step& step) {
    const __m512i bytes = _mm512_loadu_si512(packed);
    const __m512i even = _mm512_shuffle_epi8(signed_codes(), low_nibbles(bytes));
    const __m512i odd = _mm512_shuffle_epi8(signed_codes(), high_nibbles(bytes));
    const __m512i bias = _mm512_set1_epi8(kCodeBias);
    const __m512i sum = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), bias, even), bias, odd);
    _mm512_store_si512(step.even, even);
    _mm512_store_si512(step.odd, odd);
    _mm512_store_si512(step.start, _mm512_sub_epi32(_mm512_setzero_si512(), sum));
    const __m128i groups = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales));
    const __m256i twice = _mm256_castsi128_si256(_mm_unpacklo_epi8(groups, groups));
    const __m512 scale = _mm512_cvtph_ps(_mm512_castsi512_si256(to_half(_mm512_cvtepu8_epi16(twice))));
    _mm512_store_ps(step.scale, _mm512_mul_ps(scale, _mm512_set1_ps(kScaleUnit)));
  }

  template <class Shape, int kTokens>
  static void quad(const uint8_t* rows, const uint8_t* scales, const Step (*x)[kBlockTokens], float* out) {
    __m512 acc[kTokens][kQuadRows];
    for (int t = 0; t < kTokens; ++t) {
      for (int q = 0; q < kQuadRows; ++q) acc[t][q] = _mm512_setzero_ps();
    }
    for (int s = 0; s < Shape::kSteps; ++s) {
      const uint8_t* chunk = scales + 2 * s * kScaleChunkBytes;
      prefetch(chunk + Shape::kScalesAhead);
      prefetch(chunk + kScaleChunkBytes + Shape::kScalesAhead);
      const QuadScales quad_scales = decode_scales(chunk);
      __m512i even[kQuadRows], odd[kQuadRows];
      __m512 scale[kQuadRows];
      for (int q = 0; q < kQuadRows; ++q) {
        const uint8_t* row = rows + q * kQuads * Shape::kRowBytes + s * kStepBytes;
        prefetch(row + Shape::kWeightsAhead);
        const __m512i bytes = _mm512_loadu_si512(row);
        even[q] = _mm512_shuffle_epi8(biased_codes(), low_nibbles(bytes));
        odd[q] = _mm512_shuffle_epi8(biased_codes(), high_nibbles(bytes));
        scale[q] = row_scales(quad_scales, q);
      }
      for (int t = 0; t < kTokens; ++t) {
        const Step& step = x[s][t];
        const __m512i x_even = _mm512_load_si512(step.even), x_odd = _mm512_load_si512(step.odd);
        const __m512i start = _mm512_load_si512(step.start);
        const __m512 x_scale = _mm512_load_ps(step.scale);
        for (int q = 0; q < kQuadRows; ++q) {
          const __m512i dot = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start, even[q], x_even), odd[q], x_odd);
          acc[t][q] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(dot), x_scale), scale[q], acc[t][q]);
        }
      }
    }
    __m512 two[2];
    for (int i = 0; i < 2; ++i) {
      const __m512 a = sum_to_four(acc[2 * i < kTokens ? 2 * i : kTokens - 1]);
      const __m512 b = sum_to_four(acc[2 * i + 1 < kTokens ? 2 * i + 1 : kTokens - 1]);
      two[i] = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xEE));
    }
    const __m512 sum = _mm512_add_ps(_mm512_shuffle_ps(two[0], two[1], 0x88), _mm512_shuffle_ps(two[0], two[1], 0xDD));
    _mm512_store_ps(out, _mm512_mul_ps(sum, _mm512_set1_ps(0.25f * kScaleUnit)));
  }
};

}  // namespace

const Kernels kAvx512Kernels = make_kernels<Avx512>();

}  // namespace cake_moe::cpu
