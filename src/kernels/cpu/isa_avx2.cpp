// AVX2, FMA and F16C: a vector is half a step, 8 half-groups. The halves are summed one after the other, 2 of the 4
// rows at a time, which is what 16 registers hold.
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

// Eight scales in kScaleUnit: as a half, e4m3 keeps its bits and has another exponent bias.
constexpr float kScaleUnit = 256.0f;
__m256 decode_scales(const uint8_t* codes) {
  const __m128i code = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  const __m128i nan = _mm_set1_epi16(0x7F << 7);
  const __m128i magnitude = _mm_and_si128(_mm_slli_epi16(code, 7), nan);
  const __m128i sign = _mm_and_si128(_mm_slli_epi16(code, 8), _mm_set1_epi16(INT16_MIN));
  const __m128i nan_bits = _mm_srli_epi16(_mm_cmpeq_epi16(magnitude, nan), 1);
  return _mm256_cvtph_ps(_mm_or_si128(_mm_or_si128(sign, magnitude), nan_bits));
}

// Four of the eight scales, 0..3 or 4..7, each twice: for both half-groups of its group.
__m256 twice(__m256 scales, int half) {
  const int g = 4 * half;
  return _mm256_permutevar8x32_ps(scales, _mm256_setr_epi32(g, g, g + 1, g + 1, g + 2, g + 2, g + 3, g + 3));
}

struct Avx2 {
  using Step = BiasedStep;

  static void unpack(const uint8_t* packed, const uint8_t* scales, Step& step) {
    const __m256 groups = _mm256_mul_ps(decode_scales(scales), _mm256_set1_ps(kScaleUnit));
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

  // Lanes of one half of the steps, of 2 rows: acc[token][row].
  template <class Shape, int kTokens>
  static void half_sums(const uint8_t* rows, const uint8_t* scales, const Step (*x)[kBlockTokens], int half,
                        __m256 (&acc)[kTokens][2]) {
    for (int t = 0; t < kTokens; ++t) acc[t][0] = acc[t][1] = _mm256_setzero_ps();
    for (int s = 0; s < Shape::kSteps; ++s) {
      const uint8_t* chunk = scales + (2 * s + half) * kScaleChunkBytes;  // a half has as many groups as a chunk
      prefetch(chunk + Shape::kScalesAhead);
      const __m256 both = decode_scales(chunk);
      __m256i even[2], odd[2];
      __m256 scale[2];
      for (int r = 0; r < 2; ++r) {
        const uint8_t* row = rows + r * kQuads * Shape::kRowBytes + s * kStepBytes + half * kHalfBytes;
        if (half == 0) prefetch(row + Shape::kWeightsAhead);
        const __m256i bytes = load(row);
        even[r] = _mm256_shuffle_epi8(biased_codes(), low_nibbles(bytes));
        odd[r] = _mm256_shuffle_epi8(biased_codes(), high_nibbles(bytes));
        scale[r] = twice(both, r);
      }
      for (int t = 0; t < kTokens; ++t) {
        const Step& step = x[s][t];
        const __m256i x_even = load(step.even + half * kHalfBytes), x_odd = load(step.odd + half * kHalfBytes);
        const __m256i start = load(step.start + half * kHalfLanes);
        const __m256 x_scale = _mm256_load_ps(step.scale + half * kHalfLanes);
        for (int r = 0; r < 2; ++r) {
          const __m256i sum = _mm256_add_epi32(start, dot(even[r], x_even, odd[r], x_odd));
          acc[t][r] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sum), x_scale), scale[r], acc[t][r]);
        }
      }
    }
  }

  template <class Shape, int kTokens>
  static void quad(const uint8_t* rows, const uint8_t* scales, const Step (*x)[kBlockTokens], float* out) {
    for (int pair = 0; pair < 2; ++pair) {
      const uint8_t* pair_rows = rows + pair * 2 * kQuads * Shape::kRowBytes;
      const uint8_t* pair_scales = scales + pair * 2 * kQuadGroups;
      __m256 low[kTokens][2], high[kTokens][2], four[kBlockTokens];  // four: 4 lane sums of each row
      half_sums<Shape, kTokens>(pair_rows, pair_scales, x, 0, low);
      half_sums<Shape, kTokens>(pair_rows, pair_scales, x, 1, high);
      for (int i = 0; i < kBlockTokens; ++i) {
        const int t = i < kTokens ? i : kTokens - 1;
        const __m256 a = _mm256_add_ps(low[t][0], high[t][0]), b = _mm256_add_ps(low[t][1], high[t][1]);
        four[i] = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
      }
      __m256 two[2];
      for (int i = 0; i < 2; ++i) {
        const __m256 a = four[2 * i], b = four[2 * i + 1];
        two[i] = _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xEE));
      }
      const __m256 sum =
          _mm256_add_ps(_mm256_shuffle_ps(two[0], two[1], 0x88), _mm256_shuffle_ps(two[0], two[1], 0xDD));
      _mm256_store_ps(out + pair * 2 * kBlockTokens, _mm256_mul_ps(sum, _mm256_set1_ps(0.25f * kScaleUnit)));
    }
  }
};

}  // namespace

const Kernels kAvx2Kernels = make_kernels<Avx2>();

}  // namespace cake_moe::cpu
