// f16, bf16 and their pairs, rounded once.
#include <bit>
#include <cmath>

#include "model/approximations.h"
#include "ops/convert_fast.h"
#include "ops/float.h"
#include "ops/lanes.h"

namespace ptxrun {
namespace {

using model::FloatFormat;

struct HalfModifiers {
  const FloatFormat* format;
  FloatBinary op;
  bool pair, ftz, sat, relu, is_max, nan, xorsign_abs;
  uint8_t sources;
};

constexpr uint32_t kSign = 0x8000;
constexpr uint32_t kOne[] = {0x3C00, 0x3F80};  // f16, bf16

uint32_t one(const FloatFormat& format) { return kOne[&format == &model::kBf16]; }

bool is_nan(const FloatFormat& format, uint32_t bits) { return (bits & ~kSign) > format.infinity(); }

uint32_t flush_half(const FloatFormat& format, uint32_t bits) {
  return (bits & format.infinity()) == 0 ? bits & kSign : bits;
}

// What .ftz, .relu and .sat make of a result.
uint32_t finish(const HalfModifiers& mods, uint32_t bits) {
  const FloatFormat& format = *mods.format;
  if (mods.ftz) bits = flush_half(format, bits);
  if (mods.relu && !is_nan(format, bits) && (bits & kSign)) return 0;
  if (!mods.sat) return bits;
  if (is_nan(format, bits) || (bits & kSign)) return 0;
  return bits < one(format) ? bits : one(format);
}

// a * b + c rounded to odd in double precision, so that the second rounding does not see a tie that was none.
double fma_to_odd(double a, double b, double c) {
  const double product = a * b;  // exact: two significands of at most 11 bits
  const double sum = product + c;
  if (!std::isfinite(sum)) return sum;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (c - part);
  const auto bits = std::bit_cast<uint64_t>(sum);
  if (error == 0 || (bits & 1)) return sum;
  const bool away = (error > 0) == (sum > 0);
  return std::bit_cast<double>(away ? bits + 1 : bits - 1);
}

uint32_t binary(const HalfModifiers& mods, uint32_t a, uint32_t b) {
  const double x = model::to_double(*mods.format, a), y = model::to_double(*mods.format, b);
  const double value = mods.op == FloatBinary::Add ? x + y : mods.op == FloatBinary::Sub ? x - y : x * y;
  return finish(mods, static_cast<uint32_t>(model::from_double(*mods.format, value)));
}

uint32_t fma(const HalfModifiers& mods, uint32_t a, uint32_t b, uint32_t c) {
  const FloatFormat& format = *mods.format;
  const double value =
      fma_to_odd(model::to_double(format, a), model::to_double(format, b), model::to_double(format, c));
  return finish(mods, static_cast<uint32_t>(model::from_double(format, value)));
}

// Sums, differences and products without modifiers. Single precision has more than twice the bits and two to spare, so
// that rounding to it first does not change the result.
template <bool kBf16, FloatBinary kOp>
uint32_t plain(uint32_t a, uint32_t b) {
  const float x = kBf16 ? fast::from_bf16(a) : fast::from_f16(a), y = kBf16 ? fast::from_bf16(b) : fast::from_f16(b);
  const float value = kOp == FloatBinary::Add ? x + y : kOp == FloatBinary::Sub ? x - y : x * y;
  const auto bits = std::bit_cast<uint32_t>(value);
  return kBf16 ? fast::bf16(bits) : fast::f16(bits);
}

template <bool kBf16, FloatBinary kOp>
Step run_plain(Warp& warp, const Instr& instr, LaneMask active) {
  // Of a single element the upper half of the row is 0 in both sources; its result is cut off.
  const uint32_t kept = instr.mods<HalfModifiers>().pair ? ~0u : 0xFFFF;
  const uint32_t* a = warp.in<uint32_t>(instr.op(1));
  const uint32_t* b = warp.in<uint32_t>(instr.op(2));
  uint32_t* d = warp.out<uint32_t>(instr.op(0));
  map_lanes(active, [&](int lane) {
    const uint32_t low = plain<kBf16, kOp>(a[lane] & 0xFFFF, b[lane] & 0xFFFF);
    const uint32_t high = plain<kBf16, kOp>(a[lane] >> 16, b[lane] >> 16);
    d[lane] = (high << 16 | low) & kept;
  });
  return Step::Next;
}

template <bool kBf16>
Handler plain_handler(FloatBinary op) {
  if (op == FloatBinary::Add) return run_plain<kBf16, FloatBinary::Add>;
  return op == FloatBinary::Sub ? run_plain<kBf16, FloatBinary::Sub> : run_plain<kBf16, FloatBinary::Mul>;
}

// Order of the codes as integers: -0 below +0.
int32_t ordered(uint32_t bits) {
  return bits & kSign ? -1 - static_cast<int32_t>(bits & ~kSign) : static_cast<int32_t>(bits);
}

uint32_t min_max(const HalfModifiers& mods, uint32_t a, uint32_t b) {
  const FloatFormat& format = *mods.format;
  const uint32_t signs = (a ^ b) & kSign;
  if (mods.xorsign_abs) {
    a &= ~kSign;
    b &= ~kSign;
  }
  const bool a_nan = is_nan(format, a), b_nan = is_nan(format, b);
  if ((a_nan && b_nan) || (mods.nan && (a_nan || b_nan))) return static_cast<uint32_t>(format.canonical_nan);
  if (a_nan || b_nan) return (a_nan ? b : a) | (mods.xorsign_abs ? signs : 0);
  return ((ordered(a) < ordered(b)) == mods.is_max ? b : a) | (mods.xorsign_abs ? signs : 0);
}

// Applies f(sources...) to the one or two elements of each lane.
template <int kSources, auto F>
Step run(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<HalfModifiers>();
  const uint32_t* sources[kSources];
  for (int i = 0; i < kSources; ++i) sources[i] = warp.in<uint32_t>(instr.op(1 + i));
  uint32_t* d = warp.out<uint32_t>(instr.op(0));
  for_lanes(active, [&](int lane) {
    uint32_t packed = 0;
    for (int shift = 0; shift < (mods.pair ? 32 : 16); shift += 16) {
      uint32_t x[kSources];
      for (int i = 0; i < kSources; ++i) {
        x[i] = sources[i][lane] >> shift & 0xFFFF;
        if (mods.ftz) x[i] = flush_half(*mods.format, x[i]);
      }
      if constexpr (kSources == 2) {
        packed |= F(mods, x[0], x[1]) << shift;
      } else {
        packed |= F(mods, x[0], x[1], x[2]) << shift;
      }
    }
    d[lane] = packed;
  });
  return Step::Next;
}

uint32_t min_max_3(const HalfModifiers& mods, uint32_t a, uint32_t b, uint32_t c) {
  return min_max(mods, min_max(mods, a, b), c);
}

HalfModifiers make_modifiers(Type type) {
  HalfModifiers mods{};
  mods.format = type == Type::F16 || type == Type::F16x2 ? &model::kF16 : &model::kBf16;
  mods.pair = type == Type::F16x2 || type == Type::BF16x2;
  return mods;
}

}  // namespace

void decode_half_binary(Decoder& d, Instr& out, Type type, FloatBinary op) {
  HalfModifiers mods = make_modifiers(type);
  mods.op = op;
  const FloatModifiers taken = take_float_modifiers(d);
  if (taken.rounding != model::Rounding::kNearestEven) d.unknown();
  mods.ftz = taken.ftz;
  mods.sat = taken.sat;
  out.set_mods(mods);
  out.handler = run<2, binary>;
  if (!mods.ftz && !mods.sat) {
    out.handler = mods.format == &model::kBf16 ? plain_handler<true>(op) : plain_handler<false>(op);
  }
  decode_map(d, type_bits(type), type_bits(type), 2);
}

void decode_half_fma(Decoder& d, Instr& out, Type type) {
  HalfModifiers mods = make_modifiers(type);
  const FloatModifiers taken = take_float_modifiers(d);
  if (taken.rounding != model::Rounding::kNearestEven) d.unknown();
  mods.ftz = taken.ftz;
  mods.sat = taken.sat;
  mods.relu = d.modifiers().take("relu");
  out.set_mods(mods);
  out.handler = run<3, fma>;
  decode_map(d, type_bits(type), type_bits(type), 3);
}

void decode_half_min_max(Decoder& d, Instr& out, Type type, bool is_max) {
  HalfModifiers mods = make_modifiers(type);
  mods.is_max = is_max;
  mods.ftz = d.modifiers().take("ftz");
  mods.nan = d.modifiers().take("NaN");
  mods.xorsign_abs = d.modifiers().take("xorsign");
  if (mods.xorsign_abs && !d.modifiers().take("abs")) d.unknown();
  mods.sources = static_cast<uint8_t>(d.operand_count() - 1);
  if (mods.sources != 2 && mods.sources != 3) d.unknown();
  if (mods.sources == 3 && mods.xorsign_abs) d.unknown();
  out.set_mods(mods);
  out.handler = mods.sources == 2 ? run<2, min_max> : run<3, min_max_3>;
  decode_map(d, type_bits(type), type_bits(type), mods.sources);
}

}  // namespace ptxrun
