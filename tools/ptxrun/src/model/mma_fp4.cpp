// The block-scaled step on e2m1 elements (kinds mxf4 and mxf4nvf4).
#include <array>
#include <cmath>
#include <vector>

#include "model/mma_arithmetic.h"
#include "model/mma_detail.h"

namespace ptxrun::model {
namespace detail {
namespace {

constexpr int kDepth = 64;
constexpr int kGroups = 4;
constexpr int kGroupDepth = kDepth / kGroups;
constexpr int kFractionBits = kTcgen05Fp4Rule.fraction_bits;
// A group's sum counts quarters (two halves), times two scale significands in eighths.
constexpr int kTermLeft = kFractionBits - 2 - 3 - 3;
constexpr int kAccumulatorLeft = kFractionBits - 23;

// e2m1 in halves.
constexpr int16_t kHalves[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct Pair {
  int16_t low, high;
};

// Of a packed byte.
constexpr std::array<Pair, 256> kPairs = [] {
  std::array<Pair, 256> pairs{};
  for (int byte = 0; byte < 256; ++byte) pairs[byte] = {kHalves[byte & 0xF], kHalves[byte >> 4]};
  return pairs;
}();
constexpr uint8_t kSigns = 0x88;  // of a packed byte

struct Scale {
  int significand = 0;  // eighths
  int exponent = kZeroExponent;
  bool is_nan = false;
};

Scale unpack_scale(ScaleFormat format, uint8_t bits) {
  if (format == ScaleFormat::kUe8m0) return {8, static_cast<int>(bits) - 127, bits == 0xFF};
  const int magnitude = bits & 0x7F;
  if (magnitude == 0) return {};
  const int field = magnitude >> 3;
  const int fraction = magnitude & 7;
  return {field == 0 ? fraction : fraction | 8, std::max(field, 1) - 7, magnitude == 0x7F};
}

void unpack_row(const uint8_t* bytes, bool negate, int16_t* halves, int stride) {
  const uint8_t flip = negate ? kSigns : 0;
  for (int i = 0; i < kDepth / 2; ++i) {
    const Pair pair = kPairs[bytes[i] ^ flip];
    halves[(2 * i) * stride] = pair.low;
    halves[(2 * i + 1) * stride] = pair.high;
  }
}

}  // namespace

// One row of a against a block of rows of b.
struct Fp4Row {
  alignas(64) int16_t halves[kDepth];
  int32_t significand[kGroups];
  int32_t exponent[kGroups];
  bool is_nan = false;
};

struct Fp4Block {
  alignas(64) int16_t halves[kDepth][kBlock];
  alignas(64) int32_t significand[kGroups][kBlock];
  alignas(64) int32_t exponent[kGroups][kBlock];
  bool is_nan[kBlock] = {};
};

struct BlockSum {
  alignas(64) int64_t sum[kBlock];
  alignas(64) int32_t max_exponent[kBlock];
};

PTXRUN_VECTORISED void fp4_block_sum(const Fp4Row& a, const Fp4Block& b, const int32_t* c_significand,
                                     const int32_t* c_exponent, BlockSum& out) {
  alignas(64) int32_t term[kGroups][kBlock];
  alignas(64) int32_t exponent[kGroups][kBlock];
  alignas(64) int32_t largest[kBlock];
  for (int j = 0; j < kBlock; ++j) largest[j] = c_exponent[j];
  for (int g = 0; g < kGroups; ++g) {
    alignas(64) int16_t dot[kBlock] = {};  // |dot| <= 16 * 12 * 12
    for (int k = g * kGroupDepth; k < (g + 1) * kGroupDepth; ++k) {
      const int16_t left = a.halves[k];
      for (int j = 0; j < kBlock; ++j) dot[j] = static_cast<int16_t>(dot[j] + left * b.halves[k][j]);
    }
    for (int j = 0; j < kBlock; ++j) {
      term[g][j] = dot[j] * (a.significand[g] * b.significand[g][j]);
      exponent[g][j] = a.exponent[g] + b.exponent[g][j];
      largest[j] = std::max(largest[j], exponent[g][j]);
    }
  }
  for (int j = 0; j < kBlock; ++j) {
    const int64_t magnitude = static_cast<int64_t>(std::abs(c_significand[j])) << kAccumulatorLeft;
    const int64_t aligned = magnitude >> std::min(largest[j] - c_exponent[j], 63);
    out.sum[j] = c_significand[j] < 0 ? -aligned : aligned;
  }
  for (int g = 0; g < kGroups; ++g) {
    for (int j = 0; j < kBlock; ++j) {
      const int64_t magnitude = static_cast<int64_t>(std::abs(term[g][j])) << kTermLeft;
      const int64_t aligned = magnitude >> std::min(largest[j] - exponent[g][j], 63);
      out.sum[j] += term[g][j] < 0 ? -aligned : aligned;
    }
  }
  for (int j = 0; j < kBlock; ++j) out.max_exponent[j] = largest[j];
}

namespace {

Fp4Row unpack_a_row(const Fp4Rows& rows, int row, ScaleFormat format) {
  Fp4Row out;
  unpack_row(rows.elements + row * (kDepth / 2), rows.negate, out.halves, 1);
  for (int g = 0; g < kGroups; ++g) {
    const Scale scale = unpack_scale(format, rows.scales[row * kGroups + g]);
    out.significand[g] = scale.significand;
    out.exponent[g] = scale.exponent;
    out.is_nan |= scale.is_nan;
  }
  return out;
}

void unpack_b_block(const Fp4Rows& rows, int first, int count, ScaleFormat format, Fp4Block& out) {
  out = Fp4Block{};
  for (int j = 0; j < count; ++j) {
    unpack_row(rows.elements + (first + j) * (kDepth / 2), rows.negate, &out.halves[0][j], kBlock);
    for (int g = 0; g < kGroups; ++g) {
      const Scale scale = unpack_scale(format, rows.scales[(first + j) * kGroups + g]);
      out.significand[g][j] = scale.significand;
      out.exponent[g][j] = scale.exponent;
      out.is_nan[j] |= scale.is_nan;
    }
  }
}

void step_row_block(const Fp4Row& a, const Fp4Block& b, int count, uint32_t* d, bool accumulate) {
  alignas(64) int32_t c_significand[kBlock] = {};
  alignas(64) int32_t c_exponent[kBlock];
  for (int j = 0; j < kBlock; ++j) {
    const Term c = accumulate && j < count ? unpack_f32(d[j]) : Term{0, kZeroExponent};
    c_significand[j] = static_cast<int32_t>(c.significand);
    c_exponent[j] = c.exponent;
  }
  BlockSum sum;
  fp4_block_sum(a, b, c_significand, c_exponent, sum);
  for (int j = 0; j < count; ++j) {
    const bool special = accumulate && is_f32_special(d[j]);
    if (a.is_nan || b.is_nan[j] || (special && (d[j] & 0x7F'FFFF) != 0)) {
      d[j] = kNanResult;
    } else if (!special) {  // an infinite accumulator stays
      d[j] = truncate_to_f32(sum.sum[j], sum.max_exponent[j] - kFractionBits);
    }
  }
}

}  // namespace
}  // namespace detail

void dot_step_fp4(int m, int n, const Fp4Rows& a, const Fp4Rows& b, ScaleFormat scales, AccumulatorView d,
                  bool accumulate) {
  const int blocks = (n + detail::kBlock - 1) / detail::kBlock;
  std::vector<detail::Fp4Block> b_blocks(blocks);
  for (int block = 0; block < blocks; ++block) {
    const int first = block * detail::kBlock;
    detail::unpack_b_block(b, first, std::min(detail::kBlock, n - first), scales, b_blocks[block]);
  }
  for (int row = 0; row < m; ++row) {
    const detail::Fp4Row a_row = detail::unpack_a_row(a, row, scales);
    for (int block = 0; block < blocks; ++block) {
      const int first = block * detail::kBlock;
      detail::step_row_block(a_row, b_blocks[block], std::min(detail::kBlock, n - first),
                             d.words + row * d.row_stride + first, accumulate);
    }
  }
}

}  // namespace ptxrun::model
