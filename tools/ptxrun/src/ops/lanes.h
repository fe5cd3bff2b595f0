// Element-wise handlers: a function of one lane becomes the handler of a warp.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "decode/decoder.h"
#include "decode/registry.h"
#include "exec/warp.h"

namespace ptxrun {

// How a type lies in a row: narrow integers zero-extended to 32 bits.
template <class T>
using Stored = std::conditional_t<sizeof(T) < 4, uint32_t, T>;

template <class T>
inline T from_stored(Stored<T> value) {
  return static_cast<T>(value);
}

template <class T>
inline Stored<T> to_stored(T value) {
  if constexpr (std::integral<T> && sizeof(T) < 4) {
    return static_cast<std::make_unsigned_t<T>>(value);
  } else {
    return value;
  }
}

// op(0) = F(op(1)), and so on; D and A, B, C are the types of result and sources.
template <class D, class A, auto F>
Step map1(Warp& warp, const Instr& instr, LaneMask active) {
  const auto* a = warp.in<Stored<A>>(instr.op(1));
  auto* d = warp.out<Stored<D>>(instr.op(0));
  map_lanes(active, [&](int lane) { d[lane] = to_stored<D>(F(from_stored<A>(a[lane]))); });
  return Step::Next;
}

template <class D, class A, class B, auto F>
Step map2(Warp& warp, const Instr& instr, LaneMask active) {
  const auto* a = warp.in<Stored<A>>(instr.op(1));
  const auto* b = warp.in<Stored<B>>(instr.op(2));
  auto* d = warp.out<Stored<D>>(instr.op(0));
  map_lanes(active, [&](int lane) { d[lane] = to_stored<D>(F(from_stored<A>(a[lane]), from_stored<B>(b[lane]))); });
  return Step::Next;
}

template <class D, class A, class B, class C, auto F>
Step map3(Warp& warp, const Instr& instr, LaneMask active) {
  const auto* a = warp.in<Stored<A>>(instr.op(1));
  const auto* b = warp.in<Stored<B>>(instr.op(2));
  const auto* c = warp.in<Stored<C>>(instr.op(3));
  auto* d = warp.out<Stored<D>>(instr.op(0));
  map_lanes(active, [&](int lane) {
    d[lane] = to_stored<D>(F(from_stored<A>(a[lane]), from_stored<B>(b[lane]), from_stored<C>(c[lane])));
  });
  return Step::Next;
}

// The operands of d = f(a, ...): a result of `result_bits`, sources of `source_bits`.
inline void decode_map(Decoder& d, int result_bits, int source_bits, size_t sources) {
  d.write(d.operand(0), result_bits);
  for (size_t i = 1; i <= sources; ++i) d.read(d.operand(i), source_bits);
  d.finish(sources + 1);
}

// Calls f(T{}) with the integer type of a PTX type (b types as unsigned); false if it is none of 16, 32 or 64 bits.
template <class F>
bool with_integer(Type type, F&& f) {
  switch (type) {
    case Type::B16:
    case Type::U16:
      f(uint16_t{});
      return true;
    case Type::S16:
      f(int16_t{});
      return true;
    case Type::B32:
    case Type::U32:
      f(uint32_t{});
      return true;
    case Type::S32:
      f(int32_t{});
      return true;
    case Type::B64:
    case Type::U64:
      f(uint64_t{});
      return true;
    case Type::S64:
      f(int64_t{});
      return true;
    default:
      return false;
  }
}

}  // namespace ptxrun
