// Plain loops over the 16 lanes, for every processor; written so that a compiler turns them into SSE2 or NEON.
#include "kernels/cpu/loops.h"

namespace cake_moe::cpu {
namespace {

constexpr int kHalfGroup = kGroup / 2;

// decode_e2m1_twice in arithmetic that has vector instructions everywhere: the magnitudes are 0 1 2 3 4 6 8 12.
inline int16_t twice_value(int16_t code) {
  const int16_t m = code & 7;
  const int16_t magnitude = static_cast<int16_t>(m + (m > 4 ? m - 4 : 0) + (m == 7 ? 2 : 0));
  return static_cast<int16_t>(code & 8 ? -magnitude : magnitude);
}

// 64 packed bytes to [element of the half-group][lane]: all 8 elements of a lane are the nibbles of one word.
inline void unpack_codes(const uint8_t* packed, int16_t (*values)[kLanes]) {
  uint32_t words[kLanes];
  std::memcpy(words, packed, kStepBytes);
  for (int i = 0; i < kHalfGroup; ++i) {
    int16_t codes[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) codes[lane] = static_cast<int16_t>(words[lane] >> 4 * i & 15u);
    for (int lane = 0; lane < kLanes; ++lane) values[i][lane] = twice_value(codes[lane]);
  }
}

struct Portable {
  struct alignas(64) Step {
    int16_t values[kHalfGroup][kLanes];
    float scale[kLanes];
  };

  static void unpack(const uint8_t* packed, const uint8_t* scales, Step& step) {
    unpack_codes(packed, step.values);
    float scale[kStepGroups];
    for (int g = 0; g < kStepGroups; ++g) scale[g] = decode_e4m3(scales[g]);
    for (int lane = 0; lane < kLanes; ++lane) step.scale[lane] = scale[lane / 2];
  }

  template <class Shape, int kTokens>
  static void quad(const uint8_t* rows, const uint8_t* scales, const Step (*x)[kBlockTokens], float* out) {
    float acc[kQuadRows][kTokens][kLanes] = {};
    for (int s = 0; s < Shape::kSteps; ++s) {
      float quad_scales[2][kQuadScaleBytes];  // [first or second 4 groups][4 rows * 4 groups]
      for (int c = 0; c < 2; ++c) {
        const uint8_t* chunk = scales + (2 * s + c) * kScaleChunkBytes;
        for (int i = 0; i < kQuadScaleBytes; ++i) quad_scales[c][i] = decode_e4m3(chunk[i]);
      }
      for (int q = 0; q < kQuadRows; ++q) {
        int16_t weights[kHalfGroup][kLanes];
        unpack_codes(rows + q * kQuads * Shape::kRowBytes + s * kStepBytes, weights);
        float scale[kLanes];
        for (int lane = 0; lane < kLanes; ++lane) {
          scale[lane] = quad_scales[lane / 2 / kQuadGroups][q * kQuadGroups + lane / 2 % kQuadGroups];
        }
        for (int t = 0; t < kTokens; ++t) {
          const Step& step = x[s][t];
          int16_t dots[kLanes] = {};
          for (int i = 0; i < kHalfGroup; ++i) {
            for (int lane = 0; lane < kLanes; ++lane) {
              dots[lane] = static_cast<int16_t>(dots[lane] + weights[i][lane] * step.values[i][lane]);
            }
          }
          // Both products are exact, so that a fused multiply-add would round to the same value.
          for (int lane = 0; lane < kLanes; ++lane) {
            acc[q][t][lane] += static_cast<float>(dots[lane]) * step.scale[lane] * scale[lane];
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
