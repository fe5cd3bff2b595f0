// Plain loops over the 16 lanes, for every processor; written so that a compiler turns them into SSE2 or NEON.
#include "kernels/cpu/loops.h"

namespace cake_moe::cpu {
namespace {

// decode_e2m1_twice of each nibble, in byte arithmetic: the magnitudes are 0 1 2 3 4 6 8 12.
inline int8_t twice_value(uint8_t code) {
  const uint8_t m = code & 7u;
  const uint8_t magnitude = static_cast<uint8_t>(m + (m > 4 ? m - 4 : 0) + (m == 7 ? 2 : 0));
  return static_cast<int8_t>(code & 8u ? -magnitude : magnitude);
}
inline void unpack_nibbles(const uint8_t* packed, int8_t* even, int8_t* odd) {
  for (int i = 0; i < kStepBytes; ++i) {
    even[i] = twice_value(packed[i] & 15u);
    odd[i] = twice_value(packed[i] >> 4);
  }
}

struct Portable {
  static void unpack(const uint8_t* packed, const uint8_t* scales, ActivationStep& step) {
    unpack_nibbles(packed, step.even, step.odd);
    float scale[kStepGroups];
    for (int g = 0; g < kStepGroups; ++g) scale[g] = decode_e4m3(scales[g]);
    for (int lane = 0; lane < kLanes; ++lane) {
      step.scale[lane] = scale[lane / 2];
      step.start[lane] = 0;  // the weight codes below are signed
    }
  }

  template <class Shape, int kTokens>
  static void quad(const uint8_t* rows, const uint8_t* scales, const ActivationStep (*x)[kBlockTokens], float* out) {
    float acc[kQuadRows][kTokens][kLanes] = {};
    for (int s = 0; s < Shape::kSteps; ++s) {
      float quad_scales[2][kQuadScaleBytes];  // [first or second 4 groups][4 rows * 4 groups]
      for (int c = 0; c < 2; ++c) {
        const uint8_t* chunk = scales + (2 * s + c) * kScaleChunkBytes;
        for (int i = 0; i < kQuadScaleBytes; ++i) quad_scales[c][i] = decode_e4m3(chunk[i]);
      }
      for (int q = 0; q < kQuadRows; ++q) {
        int8_t even[kStepBytes], odd[kStepBytes];
        unpack_nibbles(rows + q * kQuads * Shape::kRowBytes + s * kStepBytes, even, odd);
        float scale[kLanes];
        for (int lane = 0; lane < kLanes; ++lane) {
          scale[lane] = quad_scales[lane / 2 / kQuadGroups][q * kQuadGroups + lane / 2 % kQuadGroups];
        }
        for (int t = 0; t < kTokens; ++t) {
          const ActivationStep& step = x[s][t];
          int16_t sums[kStepBytes];
          for (int i = 0; i < kStepBytes; ++i) {
            sums[i] = static_cast<int16_t>(even[i] * step.even[i] + odd[i] * step.odd[i]);
          }
          for (int lane = 0; lane < kLanes; ++lane) {
            const int16_t* four = sums + lane * kHalfGroupBytes;
            const int16_t dot = static_cast<int16_t>(four[0] + four[1] + four[2] + four[3]);
            // Both products are exact, so that a fused multiply-add would round to the same value.
            acc[q][t][lane] += static_cast<float>(dot) * step.scale[lane] * scale[lane];
          }
        }
      }
    }
    for (int q = 0; q < kQuadRows; ++q) {
      for (int t = 0; t < kBlockTokens; ++t) {
        float* a = acc[q][t < kTokens ? t : kTokens - 1];
        for (int width = kLanes / 2; width > 0; width /= 2) {
          for (int lane = 0; lane < width; ++lane) a[lane] += a[lane + width];
        }
        out[q * kBlockTokens + t] = a[0] * 0.25f;
      }
    }
  }
};

}  // namespace

const Kernels kPortableKernels = make_kernels<Portable>();

}  // namespace cake_moe::cpu
