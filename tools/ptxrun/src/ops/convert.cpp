// cvt, cvta.
#include "model/conversions.h"

#include <optional>
#include <vector>

#include "memory/memory.h"
#include "ops/convert_fast.h"
#include "ops/float_lane.h"
#include "ops/lanes.h"

namespace ptxrun {
namespace {

using model::ConvertOptions;
using model::FloatFormat;
using model::IntegerType;
using model::Rounding;

struct Scalar {
  const FloatFormat* format = nullptr;  // nullptr: integer
  IntegerType integer{};
  bool ue8m0 = false;
  int bits = 0;      // of one element
  int elements = 1;  // 2: packed
};

struct NamedFormat {
  std::string_view name;
  const FloatFormat* format;
  int bits, elements;
};

// Two e2m1 share a byte; a six-bit element has a byte of its own.
constexpr NamedFormat kFormats[] = {
    {"f64", &model::kF64, 64, 1},    {"f32", &model::kF32, 32, 1},    {"f16", &model::kF16, 16, 1},
    {"bf16", &model::kBf16, 16, 1},  {"f16x2", &model::kF16, 16, 2},  {"bf16x2", &model::kBf16, 16, 2},
    {"e4m3x2", &model::kE4m3, 8, 2}, {"e5m2x2", &model::kE5m2, 8, 2}, {"e2m1x2", &model::kE2m1, 4, 2},
    {"e2m3x2", &model::kE2m3, 8, 2}, {"e3m2x2", &model::kE3m2, 8, 2},
};

std::optional<Scalar> parse_scalar(std::string_view word) {
  for (const NamedFormat& named : kFormats) {
    if (named.name == word) return Scalar{named.format, {}, false, named.bits, named.elements};
  }
  if (word == "ue8m0x2") return Scalar{nullptr, {}, true, 8, 2};
  const Type type = parse_type(word);
  const int bits = type_bits(type);
  const bool integer = word.starts_with('u') || word.starts_with('s');
  if (type == Type::Other || !integer || word.ends_with("x2")) return std::nullopt;
  return Scalar{nullptr, {bits, type_is_signed(type)}, false, bits, 1};
}

struct ConvertModifiers {
  const FloatFormat* to_format;
  const FloatFormat* from_format;
  IntegerType to, from;
  ConvertOptions options;
  bool saturate;
};
static_assert(sizeof(ConvertModifiers) <= 48);

// Registers may be wider than the type: the source is cut, the result extended with its sign.
uint64_t read_lane(Warp& warp, const Operand& op, int lane, int bits) {
  const uint64_t value = op.bits == 64 ? warp.in<uint64_t>(op)[lane] : warp.in<uint32_t>(op)[lane];
  return bits >= 64 ? value : value & ((uint64_t{1} << bits) - 1);
}

void write_lane(Warp& warp, const Operand& op, int lane, uint64_t value, int bits, bool is_signed) {
  if (is_signed && bits < 64) value = static_cast<uint64_t>(static_cast<int64_t>(value << (64 - bits)) >> (64 - bits));
  if (op.bits == 64) {
    warp.out<uint64_t>(op)[lane] = value;
  } else {
    warp.out<uint32_t>(op)[lane] = static_cast<uint32_t>(op.bits == 16 ? value & 0xFFFF : value);
  }
}

Step run_integer_to_integer(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<ConvertModifiers>();
  for_lanes(active, [&](int lane) {
    const uint64_t bits = read_lane(warp, instr.op(1), lane, mods.from.width);
    const uint64_t value = model::integer_to_integer(mods.to, mods.from, bits, mods.saturate);
    write_lane(warp, instr.op(0), lane, value, mods.to.width, mods.to.is_signed);
  });
  return Step::Next;
}

// The common widenings and narrowings of registers of exactly the type's width class.
template <class D, class A>
Step run_cast(Warp& warp, const Instr& instr, LaneMask active) {
  return map1<D, A, [](A a) { return static_cast<D>(a); }>(warp, instr, active);
}

Step run_float_to_integer(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<ConvertModifiers>();
  for_lanes(active, [&](int lane) {
    const uint64_t bits = read_lane(warp, instr.op(1), lane, mods.from_format->width());
    const uint64_t value =
        model::float_to_integer(mods.to, *mods.from_format, bits, mods.options.rounding, mods.options.flush_input);
    write_lane(warp, instr.op(0), lane, value, mods.to.width, mods.to.is_signed);
  });
  return Step::Next;
}

Step run_integer_to_float(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<ConvertModifiers>();
  for_lanes(active, [&](int lane) {
    const uint64_t bits = read_lane(warp, instr.op(1), lane, mods.from.width);
    const uint64_t value = model::integer_to_float(*mods.to_format, mods.from, bits, mods.options.rounding);
    write_lane(warp, instr.op(0), lane, value, mods.to_format->width(), false);
  });
  return Step::Next;
}

Step run_float_to_float(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<ConvertModifiers>();
  for_lanes(active, [&](int lane) {
    const uint64_t bits = read_lane(warp, instr.op(1), lane, mods.from_format->width());
    const uint64_t value = model::convert(*mods.to_format, *mods.from_format, bits, mods.options);
    write_lane(warp, instr.op(0), lane, value, mods.to_format->width(), false);
  });
  return Step::Next;
}

Step run_round_to_integral(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<ConvertModifiers>();
  for_lanes(active, [&](int lane) {
    uint64_t bits = read_lane(warp, instr.op(1), lane, mods.from_format->width());
    if (mods.options.flush_input) bits = model::convert(*mods.from_format, *mods.from_format, bits, mods.options);
    bits = model::round_to_integral(*mods.from_format, bits, mods.options.rounding);
    if (mods.options.saturate_unit) bits = model::convert(*mods.to_format, *mods.from_format, bits, mods.options);
    write_lane(warp, instr.op(0), lane, bits, mods.to_format->width(), false);
  });
  return Step::Next;
}

// Two f32 sources, the first into the high half.
Step run_pack(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<ConvertModifiers>();
  const uint32_t* high = warp.in<uint32_t>(instr.op(1));
  const uint32_t* low = warp.in<uint32_t>(instr.op(2));
  for_lanes(active, [&](int lane) {
    const uint64_t value = model::convert_pair(*mods.to_format, model::kF32, high[lane], low[lane], mods.options);
    write_lane(warp, instr.op(0), lane, value, 32, false);
  });
  return Step::Next;
}

Step run_packed(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<ConvertModifiers>();
  for_lanes(active, [&](int lane) {
    const uint64_t packed = read_lane(warp, instr.op(1), lane, 32);
    const uint64_t value = model::convert_packed(*mods.to_format, *mods.from_format, packed, mods.options);
    write_lane(warp, instr.op(0), lane, value, 32, false);
  });
  return Step::Next;
}

Step run_pack_ue8m0(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<ConvertModifiers>();
  const uint32_t* high = warp.in<uint32_t>(instr.op(1));
  const uint32_t* low = warp.in<uint32_t>(instr.op(2));
  const auto one = [&](uint32_t bits) {
    return uint32_t{model::ue8m0_from(model::kF32, bits, mods.options.rounding, mods.options.saturate_finite)};
  };
  for_lanes(active,
            [&](int lane) { write_lane(warp, instr.op(0), lane, one(high[lane]) << 8 | one(low[lane]), 16, false); });
  return Step::Next;
}

Step run_packed_to_ue8m0(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<ConvertModifiers>();
  const auto one = [&](uint64_t bits) {
    return uint32_t{model::ue8m0_from(*mods.from_format, bits, mods.options.rounding, mods.options.saturate_finite)};
  };
  for_lanes(active, [&](int lane) {
    const uint64_t pair = read_lane(warp, instr.op(1), lane, 32);
    write_lane(warp, instr.op(0), lane, one(pair >> 16) << 8 | one(pair & 0xFFFF), 16, false);
  });
  return Step::Next;
}

Step run_packed_from_ue8m0(Warp& warp, const Instr& instr, LaneMask active) {
  for_lanes(active, [&](int lane) {
    const uint64_t pair = read_lane(warp, instr.op(1), lane, 16);
    const uint32_t low = model::bf16_from_ue8m0(static_cast<uint8_t>(pair));
    const uint32_t high = model::bf16_from_ue8m0(static_cast<uint8_t>(pair >> 8));
    write_lane(warp, instr.op(0), lane, high << 16 | low, 32, false);
  });
  return Step::Next;
}

// Fast paths of what kernels convert most ---------------------------------------------------------------------------

// Two f32 sources; F rounds one of them to kBits.
template <auto F, int kBits>
Step run_pack_fast(Warp& warp, const Instr& instr, LaneMask active) {
  return map2<uint32_t, uint32_t, uint32_t, [](uint32_t high, uint32_t low) { return F(high) << kBits | F(low); }>(
      warp, instr, active);
}

Handler fast_pack(const Scalar& to, const ConvertOptions& options) {
  const bool plain = options.rounding == Rounding::kNearestEven && !options.relu && !options.flush_input;
  if (!plain) return nullptr;
  if (options.saturate_finite) {
    if (to.format == &model::kE4m3) return run_pack_fast<fast::e4m3, 8>;
    return to.format == &model::kE2m1 ? run_pack_fast<fast::e2m1, 4> : nullptr;
  }
  if (to.format == &model::kBf16) return run_pack_fast<fast::bf16, 16>;
  return to.format == &model::kF16 ? run_pack_fast<fast::f16, 16> : nullptr;
}

// Every pair of four- or eight-bit codes as f16x2.
template <const FloatFormat& kFormat, int kBits>
Step run_unpack_fast(Warp& warp, const Instr& instr, LaneMask active) {
  static const std::vector<uint32_t> table = [] {
    std::vector<uint32_t> values(size_t{1} << 2 * kBits);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<uint32_t>(model::convert_packed(model::kF16, kFormat, i));
    }
    return values;
  }();
  const uint32_t* a = warp.in<uint32_t>(instr.op(1));
  uint32_t* d = warp.out<uint32_t>(instr.op(0));
  for_lanes(active, [&](int lane) { d[lane] = table[a[lane] & (table.size() - 1)]; });
  return Step::Next;
}

Handler fast_unpack(const Scalar& to, const Scalar& from, const ConvertOptions& options, int source_register) {
  if (to.format != &model::kF16 || options.relu || source_register > 32) return nullptr;
  if (from.format == &model::kE4m3) return run_unpack_fast<model::kE4m3, 8>;
  return from.format == &model::kE2m1 ? run_unpack_fast<model::kE2m1, 4> : nullptr;
}

Step run_u32_to_f32(Warp& warp, const Instr& instr, LaneMask active) {
  return map1<float, uint32_t, [](uint32_t a) { return static_cast<float>(a); }>(warp, instr, active);
}
Step run_s32_to_f32(Warp& warp, const Instr& instr, LaneMask active) {
  return map1<float, int32_t, [](int32_t a) { return static_cast<float>(a); }>(warp, instr, active);
}

Handler fast_handler(const Scalar& to, const Scalar& from, const ConvertModifiers& mods, int to_register,
                     int from_register) {
  if (mods.saturate || to.elements > 1 || from.elements > 1) return nullptr;
  if (to.format == &model::kF32 && from.format == nullptr && from.bits == 32 && from_register == 32 &&
      mods.options.rounding == Rounding::kNearestEven) {
    return from.integer.is_signed ? run_s32_to_f32 : run_u32_to_f32;
  }
  if (to.format || from.format || to_register != to.bits || from_register != from.bits) return nullptr;
  if (to.bits == 64 && from.bits == 32) {
    return from.integer.is_signed ? run_cast<int64_t, int32_t> : run_cast<uint64_t, uint32_t>;
  }
  if (to.bits == 32 && from.bits == 64) return run_cast<uint32_t, uint64_t>;
  if (to.bits == 32 && from.bits == 16) {
    return from.integer.is_signed ? run_cast<int32_t, int16_t> : run_cast<uint32_t, uint16_t>;
  }
  if (to.bits == 16 && from.bits == 32) return run_cast<uint16_t, uint32_t>;
  if (to.bits == 64 && from.bits == 16) {
    return from.integer.is_signed ? run_cast<int64_t, int16_t> : run_cast<uint64_t, uint16_t>;
  }
  return nullptr;
}

// Decoding --------------------------------------------------------------------------------------------------------

struct Roundings {
  Rounding rounding = Rounding::kNearestEven;
  bool given = false;
  bool to_integral = false;  // .rni and so on
};

Roundings take_rounding(Decoder& d) {
  constexpr Rounding kModes[] = {Rounding::kNearestEven, Rounding::kTowardZero, Rounding::kDown, Rounding::kUp,
                                 Rounding::kNearestAway};
  const int plain = d.modifiers().take_one({"rn", "rz", "rm", "rp", "rna"});
  if (plain >= 0) return {kModes[plain], true, false};
  const int integral = d.modifiers().take_one({"rni", "rzi", "rmi", "rpi"});
  if (integral >= 0) return {kModes[integral], true, true};
  return {};
}

int container_bits(const Scalar& scalar) { return std::max(16, scalar.bits * scalar.elements); }

void decode_packed(Decoder& d, Instr& out, const Scalar& to, const Scalar& from, const ConvertOptions& options,
                   bool two_sources) {
  d.write_any(d.operand(0));
  if (two_sources) {
    if (from.format != &model::kF32) d.unknown();
    d.read(d.operand(1), 32);
    d.read(d.operand(2), 32);
    out.handler = to.ue8m0 ? run_pack_ue8m0 : run_pack;
    if (const Handler fast = to.ue8m0 ? nullptr : fast_pack(to, options)) out.handler = fast;
    return d.finish(3);
  }
  if (from.elements != 2) d.unknown();
  const int source = d.read_any(d.operand(1), container_bits(from));
  if (to.ue8m0) {
    if (from.format != &model::kBf16) d.unknown();
    out.handler = run_packed_to_ue8m0;
  } else if (from.ue8m0) {
    if (to.format != &model::kBf16) d.unknown();
    out.handler = run_packed_from_ue8m0;
  } else {
    out.handler = run_packed;
    if (const Handler fast = fast_unpack(to, from, options, d.bits_of(source))) out.handler = fast;
  }
  d.finish(2);
}

void decode_cvt(Decoder& d, Instr& out) {
  out.op_class = OpClass::Convert;
  const std::optional<Scalar> from = parse_scalar(d.modifiers().take_back());
  const std::optional<Scalar> to = parse_scalar(d.modifiers().take_back());
  if (!from || !to) d.unknown();
  const Roundings rounding = take_rounding(d);
  ConvertModifiers mods{to->format, from->format, to->integer, from->integer, {}, false};
  mods.options.rounding = rounding.rounding;
  mods.options.flush_input = mods.options.flush_result = d.modifiers().take("ftz");
  mods.options.saturate_finite = d.modifiers().take("satfinite");
  mods.options.relu = d.modifiers().take("relu");
  mods.saturate = mods.options.saturate_unit = d.modifiers().take("sat");
  out.set_mods(mods);
  if (to->elements == 2 || from->elements == 2)
    return decode_packed(d, out, *to, *from, mods.options, d.operand_count() == 3);
  const int target = d.write_any(d.operand(0)), source = d.read_any(d.operand(1), from->bits);
  if (to->format && from->format) {
    const bool integral = to->format == from->format && (rounding.to_integral || rounding.given);
    out.handler = integral ? run_round_to_integral : run_float_to_float;
  } else if (to->format) {
    out.handler = run_integer_to_float;
  } else if (from->format) {
    if (!rounding.to_integral) d.unknown("a conversion to an integer needs a rounding");
    out.handler = run_float_to_integer;
  } else {
    out.handler = run_integer_to_integer;
  }
  if (const Handler fast = fast_handler(*to, *from, mods, d.bits_of(target), d.bits_of(source))) out.handler = fast;
  d.finish(2);
}

// cvta ------------------------------------------------------------------------------------------------------------

struct WindowModifiers {
  uint64_t offset;  // added, or subtracted with .to
};

Step run_cvta(Warp& warp, const Instr& instr, LaneMask active) {
  const uint64_t offset = instr.mods<WindowModifiers>().offset;
  const uint64_t* a = warp.in<uint64_t>(instr.op(1));
  uint64_t* d = warp.out<uint64_t>(instr.op(0));
  for_lanes(active, [&](int lane) { d[lane] = a[lane] + offset; });
  return Step::Next;
}

void decode_cvta(Decoder& d, Instr& out) {
  const bool to = d.modifiers().take("to");
  const int space = d.modifiers().take_one(
      {"global", "const", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry"});
  if (space < 0 || d.modifiers().take_type() != Type::U64) d.unknown();
  constexpr uint64_t kWindows[] = {
      0, 0, kSharedWindow, kSharedWindow, kSharedWindow, kLocalWindow, kParamWindow, kParamWindow};
  out.set_mods(WindowModifiers{to ? 0 - kWindows[space] : kWindows[space]});
  out.handler = run_cvta;
  decode_map(d, 64, 64, 1);
}

const Family families[] = {{"cvt", decode_cvt}, {"cvta", decode_cvta}};

}  // namespace
}  // namespace ptxrun
