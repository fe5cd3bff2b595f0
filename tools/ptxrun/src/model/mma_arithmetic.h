// The arithmetic of tensor-core matrix steps: which bits a fused dot product keeps.
//
// The rules are those of MMA-Sim (Xie et al., arXiv 2511.10909), which were compared with silicon:
//   * Products of elements are exact. A product's exponent is the sum of its operands' exponents, not normalised; a
//   zero
//     operand counts with exponent -126, a subnormal one with the smallest exponent of its format.
//   * All products of the step and the accumulator are aligned to the largest exponent, keep `fraction_bits` bits
//   behind
//     the binary point and lose the rest (truncation toward zero, term by term). Their sum is exact.
//   * The sum is rounded toward zero to f32 (kF32TopBits: to 13 fraction bits), or to nearest even to f16. A sum of
//   zero
//     is +0. Beyond the largest finite value it is infinity.
//   * A NaN gives 0x7FFFFFFF (f16: 0x7FFF), and so do infinities that cancel or meet a zero; other infinities stay.
// MMA-Sim covers mma.sync, wgmma and tcgen05.mma of one CTA. cta_group::2 is taken to follow the same arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/float_format.h"

namespace ptxrun::model {

enum class ResultFormat { kF32, kF32TopBits, kF16 };

struct AccumulationRule {
  int fraction_bits;
  ResultFormat result;
};

inline constexpr AccumulationRule kHopperRule{25, ResultFormat::kF32};  // mma.sync; wgmma f16, bf16
inline constexpr AccumulationRule kHopperFp8WgmmaRule{13, ResultFormat::kF32TopBits};
inline constexpr AccumulationRule kTcgen05Rule{25, ResultFormat::kF32};     // f16, f8f6f4, mxf8f6f4
inline constexpr AccumulationRule kTcgen05Fp4Rule{35, ResultFormat::kF32};  // mxf4, mxf4nvf4

// Extents of one step; m, n <= 256 and k <= 64.
struct StepShape {
  int m, n, k;
};

// Row-major accumulators: f32 bits, or f16 bits in the low half of a word.
struct AccumulatorView {
  uint32_t* words;
  ptrdiff_t row_stride;  // in words
};

struct StepElements {
  const FloatFormat* format;
  const uint16_t* bits;  // [rows, k] element patterns
  bool negate = false;
  const int8_t* scale_exponents = nullptr;  // [rows] log2 of a ue8m0 block scale; nullptr: none
  const bool* scale_is_nan = nullptr;       // [rows], with scale_exponents
};

// d = a b^T + d (or + 0 without `accumulate`) with a [m, k] and b [n, k].
void dot_step(StepShape shape, const StepElements& a, const StepElements& b, AccumulatorView d, bool accumulate,
              AccumulationRule rule);

struct IntegerElements {
  const uint16_t* bits;  // [rows, k], 8 bits each
  bool is_signed;
};

// d += a b^T in 32 bits, wrapping.
void dot_step_int8(StepShape shape, IntegerElements a, IntegerElements b, AccumulatorView d);

enum class ScaleFormat { kUe4m3, kUe8m0 };

// K = 64 e2m1 elements a row, two a byte (the even one in the low half), and a scale for each 16 of them.
struct Fp4Rows {
  const uint8_t* elements;  // [rows, 32]
  const uint8_t* scales;    // [rows, 4]; block32 repeats each scale
  bool negate = false;
};

// d = a b^T + d for m rows of a and n rows of b. The sign bit of a ue4m3 scale is ignored.
void dot_step_fp4(int m, int n, const Fp4Rows& a, const Fp4Rows& b, ScaleFormat scales, AccumulatorView d,
                  bool accumulate);

}  // namespace ptxrun::model
