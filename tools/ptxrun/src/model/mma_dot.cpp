// The step on elements of 8 to 19 bits: mma.sync, wgmma and tcgen05.mma without fp4.
#include <cmath>
#include <vector>

#include "model/approximations.h"
#include "model/mma_arithmetic.h"
#include "model/mma_detail.h"

namespace ptxrun::model {
namespace detail {

constexpr int kMaxDepth = 64;
constexpr int kPartialDepth = 16;  // 16 terms below 2^27 fit a 32-bit sum

// Elements apart: (-1)^s significand * 2^(exponent - fraction bits), the exponent with the row's block scale.
struct RowTerms {
  alignas(64) int32_t significand[kMaxDepth];
  alignas(64) int32_t exponent[kMaxDepth];
  bool special = false;  // an infinity or NaN among the elements or the scale
};

struct BlockTerms {
  alignas(64) int32_t significand[kMaxDepth][kBlock];
  alignas(64) int32_t exponent[kMaxDepth][kBlock];
  bool special[kBlock] = {};
};

struct DotSum {
  alignas(64) int64_t sum[kBlock];
  alignas(64) int32_t max_exponent[kBlock];
};

// `left` brings a product to `fraction_bits` bits behind the point. A product is below 4 * 2^(fraction bits of both
// formats), so it stays below 2^(fraction_bits + 2) <= 2^27 when shifted.
PTXRUN_VECTORISED void dot_block_sum(const RowTerms& a, const BlockTerms& b, int depth, int left,
                                     const int32_t* c_exponent, DotSum& out) {
  alignas(64) int32_t largest[kBlock];
  for (int j = 0; j < kBlock; ++j) largest[j] = c_exponent[j];
  for (int k = 0; k < depth; ++k) {
    for (int j = 0; j < kBlock; ++j) largest[j] = std::max(largest[j], a.exponent[k] + b.exponent[k][j]);
  }
  for (int j = 0; j < kBlock; ++j) out.sum[j] = 0;
  for (int first = 0; first < depth; first += kPartialDepth) {
    alignas(64) int32_t partial[kBlock] = {};
    for (int k = first; k < std::min(first + kPartialDepth, depth); ++k) {
      for (int j = 0; j < kBlock; ++j) {
        const int32_t product = a.significand[k] * b.significand[k][j];
        const int32_t right = std::min(largest[j] - a.exponent[k] - b.exponent[k][j], 31);
        const int32_t aligned = (std::abs(product) << left) >> right;
        partial[j] += product < 0 ? -aligned : aligned;
      }
    }
    for (int j = 0; j < kBlock; ++j) out.sum[j] += partial[j];
  }
  for (int j = 0; j < kBlock; ++j) out.max_exponent[j] = largest[j];
}

namespace {

struct Element {
  int32_t significand;
  int32_t exponent;
  bool special;
};

// Format fields in registers: this runs once an element of a step.
class ElementReader {
 public:
  ElementReader(const FloatFormat& format, bool negate)
      : format_(format), hidden_(uint32_t{1} << format.fraction_bits), sign_flip_(negate ? format.sign_mask() : 0) {}

  Element read(uint16_t raw) const {
    const uint32_t bits = raw ^ static_cast<uint32_t>(sign_flip_);
    const uint32_t magnitude = bits & static_cast<uint32_t>(format_.sign_mask() - 1);
    if (magnitude == 0) return {0, kZeroExponent, false};
    const uint32_t field = magnitude >> format_.fraction_bits;
    const uint32_t fraction = magnitude & (hidden_ - 1);
    const auto significand = static_cast<int32_t>(field == 0 ? fraction : fraction | hidden_);
    const bool negative = (bits & static_cast<uint32_t>(format_.sign_mask())) != 0;
    return {negative ? -significand : significand, std::max<int>(static_cast<int>(field), 1) - format_.bias,
            magnitude > format_.max_finite()};
  }

 private:
  const FloatFormat& format_;
  uint32_t hidden_;
  uint64_t sign_flip_;
};

int scale_exponent(const StepElements& elements, int row) {
  return elements.scale_exponents == nullptr ? 0 : elements.scale_exponents[row];
}

bool scale_is_nan(const StepElements& elements, int row) {
  return elements.scale_is_nan != nullptr && elements.scale_is_nan[row];
}

void unpack_row(const StepElements& elements, const ElementReader& reader, int row, int depth, RowTerms& out) {
  out.special = scale_is_nan(elements, row);
  for (int k = 0; k < depth; ++k) {
    const Element element = reader.read(elements.bits[row * depth + k]);
    out.significand[k] = element.significand;
    out.exponent[k] = element.exponent + scale_exponent(elements, row);
    out.special |= element.special;
  }
}

void unpack_block(const StepElements& elements, const ElementReader& reader, int first, int count, int depth,
                  BlockTerms& out) {
  for (int j = 0; j < kBlock; ++j) {
    out.special[j] = j < count && scale_is_nan(elements, first + j);
    for (int k = 0; k < depth; ++k) {
      const Element element =
          j < count ? reader.read(elements.bits[(first + j) * depth + k]) : Element{0, kZeroExponent, false};
      out.significand[k][j] = element.significand;
      out.exponent[k][j] = element.exponent + (j < count ? scale_exponent(elements, first + j) : 0);
      out.special[j] |= element.special;
    }
  }
}

class Accumulator {
 public:
  Accumulator(AccumulationRule rule, bool accumulate)
      : rule_(rule), format_(rule.result == ResultFormat::kF16 ? kF16 : kF32), accumulate_(accumulate) {}

  uint32_t read(uint32_t word) const {
    if (!accumulate_) return 0;
    return rule_.result == ResultFormat::kF16 ? word & 0xFFFF : word;
  }

  Term unpack(uint32_t bits) const {
    if (rule_.result != ResultFormat::kF16) return unpack_f32(bits);
    const Unpacked value = model::unpack(kF16, bits);
    const auto significand = static_cast<int64_t>(value.significand << (23 - kF16.fraction_bits));
    return {value.negative ? -significand : significand,
            value.is_zero() ? kZeroExponent : value.exponent + kF16.fraction_bits};
  }

  bool is_special(uint32_t bits) const { return (bits & format_.infinity()) == format_.infinity(); }
  double to_double(uint32_t bits) const { return model::to_double(format_, bits); }

  uint32_t round(int64_t sum, int exponent) const {
    if (rule_.result == ResultFormat::kF32) return truncate_to_f32(sum, exponent);
    if (rule_.result == ResultFormat::kF32TopBits) return truncate_to_f32(sum, exponent, rule_.fraction_bits);
    const auto magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
    const Unpacked value{Unpacked::Kind::kFinite, sum < 0, magnitude, exponent};
    return static_cast<uint32_t>(pack(kF16, value, Rounding::kNearestEven));
  }

  uint32_t round_special(double sum) const {
    if (std::isnan(sum)) return rule_.result == ResultFormat::kF16 ? 0x7FFF : kNanResult;
    return static_cast<uint32_t>((std::signbit(sum) ? format_.sign_mask() : 0) | format_.infinity());
  }

 private:
  AccumulationRule rule_;
  FloatFormat format_;
  bool accumulate_;
};

// One step: b's columns in blocks, a's rows one after the other.
class DotStep {
 public:
  DotStep(StepShape shape, const StepElements& a, const StepElements& b, bool accumulate, AccumulationRule rule)
      : shape_(shape),
        a_(a),
        b_(b),
        rule_(rule),
        left_(rule.fraction_bits - a.format->fraction_bits - b.format->fraction_bits),
        accumulator_(rule, accumulate) {}

  void run(AccumulatorView d) const {
    const ElementReader a_reader(*a_.format, a_.negate), b_reader(*b_.format, b_.negate);
    std::vector<BlockTerms> blocks((shape_.n + kBlock - 1) / kBlock);
    for (size_t block = 0; block < blocks.size(); ++block) {
      const int first = static_cast<int>(block) * kBlock;
      unpack_block(b_, b_reader, first, std::min(kBlock, shape_.n - first), shape_.k, blocks[block]);
    }
    RowTerms terms;
    for (int row = 0; row < shape_.m; ++row) {
      unpack_row(a_, a_reader, row, shape_.k, terms);
      for (size_t block = 0; block < blocks.size(); ++block) {
        const int first = static_cast<int>(block) * kBlock;
        row_block(terms, blocks[block], row, first, d.words + row * d.row_stride + first);
      }
    }
  }

 private:
  void row_block(const RowTerms& a, const BlockTerms& b, int row, int first, uint32_t* d) const {
    const int count = std::min(kBlock, shape_.n - first);
    alignas(64) int32_t c_exponent[kBlock];
    Term c[kBlock];
    for (int j = 0; j < kBlock; ++j) {
      c[j] = j < count ? accumulator_.unpack(accumulator_.read(d[j])) : Term{0, kZeroExponent};
      c_exponent[j] = c[j].exponent;
    }
    DotSum dot;
    dot_block_sum(a, b, shape_.k, left_, c_exponent, dot);
    for (int j = 0; j < count; ++j) {
      const uint32_t c_bits = accumulator_.read(d[j]);
      if (a.special || b.special[j] || accumulator_.is_special(c_bits)) {
        const double sum = special_sum(row, first + j, accumulator_.to_double(c_bits));
        if (!std::isfinite(sum)) {
          d[j] = accumulator_.round_special(sum);
          continue;
        }
      }
      const int64_t aligned = align(c[j].significand, rule_.fraction_bits - 23, dot.max_exponent[j] - c[j].exponent);
      d[j] = accumulator_.round(dot.sum[j] + aligned, dot.max_exponent[j] - rule_.fraction_bits);
    }
  }

  // The sum with an infinity or NaN among its terms: only their kind matters.
  double special_sum(int row, int column, double c) const {
    if (scale_is_nan(a_, row) || scale_is_nan(b_, column)) return std::nan("");
    const double sign = a_.negate != b_.negate ? -1 : 1;
    double sum = c;
    for (int k = 0; k < shape_.k; ++k) {
      sum += sign * to_double(*a_.format, a_.bits[row * shape_.k + k]) *
             to_double(*b_.format, b_.bits[column * shape_.k + k]);
    }
    return sum;
  }

  StepShape shape_;
  const StepElements& a_;
  const StepElements& b_;
  AccumulationRule rule_;
  int left_;  // brings a product's point to that of the sum
  Accumulator accumulator_;
};

}  // namespace
}  // namespace detail

void dot_step(StepShape shape, const StepElements& a, const StepElements& b, AccumulatorView d, bool accumulate,
              AccumulationRule rule) {
  detail::DotStep(shape, a, b, accumulate, rule).run(d);
}

void dot_step_int8(StepShape shape, IntegerElements a, IntegerElements b, AccumulatorView d) {
  const auto value = [](IntegerElements elements, int at) {
    const uint16_t bits = elements.bits[at];
    return elements.is_signed ? static_cast<int32_t>(static_cast<int8_t>(bits)) : static_cast<int32_t>(bits);
  };
  for (int row = 0; row < shape.m; ++row) {
    for (int column = 0; column < shape.n; ++column) {
      int32_t sum = 0;  // 64 products stay below 2^23
      for (int k = 0; k < shape.k; ++k) sum += value(a, row * shape.k + k) * value(b, column * shape.k + k);
      d.words[row * d.row_stride + column] += static_cast<uint32_t>(sum);
    }
  }
}

}  // namespace ptxrun::model
