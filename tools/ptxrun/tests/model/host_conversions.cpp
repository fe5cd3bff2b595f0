// The CUDA headers' host conversions and the C++ compiler's, for comparison: host_conversions NAME < u64 words > u64
// words.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <type_traits>

namespace {

using Word = uint64_t;
using Function = Word (*)(Word);

float f32(Word x) { return std::bit_cast<float>(static_cast<uint32_t>(x)); }
double f64(Word x) { return std::bit_cast<double>(x); }
__half_raw f16(Word x) { return {static_cast<unsigned short>(x)}; }
__nv_bfloat16_raw bf16(Word x) { return {static_cast<unsigned short>(x)}; }
Word bits(float x) { return std::bit_cast<uint32_t>(x); }
Word bits(double x) { return std::bit_cast<uint64_t>(x); }
Word bits(__half x) { return static_cast<__half_raw>(x).x; }
Word bits(__nv_bfloat16 x) { return static_cast<__nv_bfloat16_raw>(x).x; }

template <int mode, class To, class From>
Word cast(From value) {
  std::fesetround(mode);
  const volatile From from = value;
  const volatile To to = static_cast<To>(from);
  std::fesetround(FE_TONEAREST);
  if constexpr (std::is_floating_point_v<To>) return bits(static_cast<To>(to));
  return static_cast<Word>(static_cast<To>(to));
}

template <int mode, class T>
T round_integral(T value) {
  std::fesetround(mode);
  const volatile T from = value;
  const T rounded = std::nearbyint(from);
  std::fesetround(FE_TONEAREST);
  return rounded;
}

// Out of range saturates; what a NaN becomes is the caller's matter.
template <int mode, class To>
Word clamp(double value) {
  const long double rounded = round_integral<mode>(value);
  using Limits = std::numeric_limits<To>;
  const To result = rounded <= static_cast<long double>(Limits::min())   ? Limits::min()
                    : rounded >= static_cast<long double>(Limits::max()) ? Limits::max()
                                                                         : static_cast<To>(rounded);
  return static_cast<std::make_unsigned_t<To>>(result);
}

#define MODES(table, name, cast_expression)               \
  table[std::string(name) + " rn"] = [](Word x) -> Word { \
    constexpr int mode = FE_TONEAREST;                    \
    return cast_expression;                               \
  };                                                      \
  table[std::string(name) + " rz"] = [](Word x) -> Word { \
    constexpr int mode = FE_TOWARDZERO;                   \
    return cast_expression;                               \
  };                                                      \
  table[std::string(name) + " rm"] = [](Word x) -> Word { \
    constexpr int mode = FE_DOWNWARD;                     \
    return cast_expression;                               \
  };                                                      \
  table[std::string(name) + " rp"] = [](Word x) -> Word { \
    constexpr int mode = FE_UPWARD;                       \
    return cast_expression;                               \
  };

#define HALF_MODES(table, name, function, suffix_expression)                                          \
  table[std::string(name) + " rn"] = [](Word x) -> Word { return suffix_expression(function##_rn); }; \
  table[std::string(name) + " rz"] = [](Word x) -> Word { return suffix_expression(function##_rz); }; \
  table[std::string(name) + " rm"] = [](Word x) -> Word { return suffix_expression(function##_rd); }; \
  table[std::string(name) + " rp"] = [](Word x) -> Word { return suffix_expression(function##_ru); };

#define FROM_F32(function) bits(function(f32(x)))
#define FROM_S32(function) bits(function(static_cast<int>(x)))
#define FROM_U32(function) bits(function(static_cast<unsigned>(x)))
#define FROM_S64(function) bits(function(static_cast<long long>(x)))
#define FROM_U64(function) bits(function(static_cast<unsigned long long>(x)))

void add_half(std::map<std::string, Function>& t) {
  HALF_MODES(t, "f16 f32", __float2half, FROM_F32)
  HALF_MODES(t, "bf16 f32", __float2bfloat16, FROM_F32)
  HALF_MODES(t, "f16 s32", __int2half, FROM_S32)
  HALF_MODES(t, "f16 u32", __uint2half, FROM_U32)
  HALF_MODES(t, "f16 s64", __ll2half, FROM_S64)
  HALF_MODES(t, "f16 u64", __ull2half, FROM_U64)
  t["bf16 s32 rn"] = [](Word x) { return bits(__int2bfloat16_rn(static_cast<int>(x))); };
  t["bf16 u64 rn"] = [](Word x) { return bits(__ull2bfloat16_rn(x)); };
  t["s32 f16 rz"] = [](Word x) -> Word { return static_cast<uint32_t>(__half2int_rz(f16(x))); };
  t["u64 f16 rz"] = [](Word x) -> Word { return __half2ull_rz(f16(x)); };
  t["s32 bf16 rz"] = [](Word x) -> Word { return static_cast<uint32_t>(__bfloat162int_rz(bf16(x))); };
  t["u64 bf16 rz"] = [](Word x) -> Word { return __bfloat162ull_rz(bf16(x)); };
  t["f16 f64 rn"] = [](Word x) { return bits(__double2half(f64(x))); };
  t["bf16 f64 rn"] = [](Word x) { return bits(__double2bfloat16(f64(x))); };
  t["f32 f16 rn"] = [](Word x) { return bits(__half2float(f16(x))); };
  t["f32 bf16 rn"] = [](Word x) { return bits(__bfloat162float(bf16(x))); };
}

void add_wide(std::map<std::string, Function>& t) {
  MODES(t, "f32 f64", (cast<mode, float>(f64(x))))
  MODES(t, "f32 s32", (cast<mode, float>(static_cast<int32_t>(x))))
  MODES(t, "f32 u32", (cast<mode, float>(static_cast<uint32_t>(x))))
  MODES(t, "f32 s64", (cast<mode, float>(static_cast<int64_t>(x))))
  MODES(t, "f32 u64", (cast<mode, float>(x)))
  MODES(t, "f64 s64", (cast<mode, double>(static_cast<int64_t>(x))))
  MODES(t, "f64 u64", (cast<mode, double>(x)))
  MODES(t, "integral f32", (bits(round_integral<mode>(f32(x)))))
  MODES(t, "integral f64", (bits(round_integral<mode>(f64(x)))))
  t["f64 f32 rn"] = [](Word x) { return bits(static_cast<double>(f32(x))); };
}

template <class To>
void add_integer(std::map<std::string, Function>& t, const std::string& name) {
  MODES(t, name + " f32", (clamp<mode, To>(f32(x))))
  MODES(t, name + " f64", (clamp<mode, To>(f64(x))))
}

void add_integers(std::map<std::string, Function>& t) {
  add_integer<int8_t>(t, "s8");
  add_integer<uint8_t>(t, "u8");
  add_integer<int16_t>(t, "s16");
  add_integer<uint16_t>(t, "u16");
  add_integer<int32_t>(t, "s32");
  add_integer<uint32_t>(t, "u32");
  add_integer<int64_t>(t, "s64");
  add_integer<uint64_t>(t, "u64");
}

#define NARROW(t, name, kind, argument)                                                                               \
  t["e4m3 " name " satfinite"] = [](Word x) -> Word { return kind##_to_fp8(argument, __NV_SATFINITE, __NV_E4M3); };   \
  t["e5m2 " name " satfinite"] = [](Word x) -> Word { return kind##_to_fp8(argument, __NV_SATFINITE, __NV_E5M2); };   \
  t["e4m3 " name " nosat"] = [](Word x) -> Word { return kind##_to_fp8(argument, __NV_NOSAT, __NV_E4M3); };           \
  t["e5m2 " name " nosat"] = [](Word x) -> Word { return kind##_to_fp8(argument, __NV_NOSAT, __NV_E5M2); };           \
  t["e2m3 " name " satfinite"] = [](Word x) -> Word { return kind##_to_fp6(argument, __NV_E2M3, cudaRoundNearest); }; \
  t["e3m2 " name " satfinite"] = [](Word x) -> Word { return kind##_to_fp6(argument, __NV_E3M2, cudaRoundNearest); }; \
  t["e2m1 " name " satfinite"] = [](Word x) -> Word { return kind##_to_fp4(argument, __NV_E2M1, cudaRoundNearest); }; \
  t["e2m1 " name " satfinite rz"] = [](Word x) -> Word { return kind##_to_fp4(argument, __NV_E2M1, cudaRoundZero); };

void add_narrow(std::map<std::string, Function>& t) {
  NARROW(t, "f32", __nv_cvt_float, f32(x))
  NARROW(t, "f64", __nv_cvt_double, f64(x))
  NARROW(t, "f16", __nv_cvt_halfraw, f16(x))
  NARROW(t, "bf16", __nv_cvt_bfloat16raw, bf16(x))
  t["f16 e4m3"] = [](Word x) -> Word { return __nv_cvt_fp8_to_halfraw(static_cast<uint8_t>(x), __NV_E4M3).x; };
  t["f16 e5m2"] = [](Word x) -> Word { return __nv_cvt_fp8_to_halfraw(static_cast<uint8_t>(x), __NV_E5M2).x; };
  t["f16 e2m3"] = [](Word x) -> Word { return __nv_cvt_fp6_to_halfraw(static_cast<uint8_t>(x), __NV_E2M3).x; };
  t["f16 e3m2"] = [](Word x) -> Word { return __nv_cvt_fp6_to_halfraw(static_cast<uint8_t>(x), __NV_E3M2).x; };
  t["f16 e2m1"] = [](Word x) -> Word { return __nv_cvt_fp4_to_halfraw(static_cast<uint8_t>(x), __NV_E2M1).x; };
}

void add_ue8m0(std::map<std::string, Function>& t) {
  t["ue8m0 f32 rz satfinite"] = [](Word x) -> Word {
    return __nv_cvt_float_to_e8m0(f32(x), __NV_SATFINITE, cudaRoundZero);
  };
  t["ue8m0 f32 rp satfinite"] = [](Word x) -> Word {
    return __nv_cvt_float_to_e8m0(f32(x), __NV_SATFINITE, cudaRoundPosInf);
  };
  t["ue8m0 f32 rz nosat"] = [](Word x) -> Word { return __nv_cvt_float_to_e8m0(f32(x), __NV_NOSAT, cudaRoundZero); };
  t["ue8m0 f32 rp nosat"] = [](Word x) -> Word { return __nv_cvt_float_to_e8m0(f32(x), __NV_NOSAT, cudaRoundPosInf); };
  t["ue8m0 bf16 rz satfinite"] = [](Word x) -> Word {
    return __nv_cvt_bfloat16raw_to_e8m0(bf16(x), __NV_SATFINITE, cudaRoundZero);
  };
  t["ue8m0 bf16 rp satfinite"] = [](Word x) -> Word {
    return __nv_cvt_bfloat16raw_to_e8m0(bf16(x), __NV_SATFINITE, cudaRoundPosInf);
  };
  t["bf16 ue8m0"] = [](Word x) -> Word { return __nv_cvt_e8m0_to_bf16raw(static_cast<uint8_t>(x)).x; };
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, Function> table;
  add_half(table);
  add_wide(table);
  add_integers(table);
  add_narrow(table);
  add_ue8m0(table);
  if (argc != 2 || table.count(argv[1]) == 0) {
    for (const auto& [name, function] : table) std::fprintf(stderr, "%s\n", name.c_str());
    return 2;
  }
  const Function function = table.at(argv[1]);
  Word block[4096];
  for (size_t count; (count = std::fread(block, sizeof(Word), 4096, stdin)) > 0;) {
    for (size_t i = 0; i < count; ++i) block[i] = function(block[i]);
    std::fwrite(block, sizeof(Word), count, stdout);
  }
  return 0;
}
