// Element-wise reductions of cp.reduce.async.bulk.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "model/conversions.h"
#include "ops/bulk_copy.h"

namespace ptxrun::ops {

namespace {

template <class T>
T integer_result(ReduceOp op, T to, T from) {
  switch (op) {
    case ReduceOp::Add:
      return to + from;
    case ReduceOp::Min:
      return std::min(to, from);
    case ReduceOp::Max:
      return std::max(to, from);
    case ReduceOp::Inc:
      return to >= from ? T{0} : to + T{1};
    case ReduceOp::Dec:
      return to == 0 || to > from ? from : to - T{1};
    case ReduceOp::And:
      return to & from;
    case ReduceOp::Or:
      return to | from;
    default:
      return to ^ from;
  }
}

template <class T>
T float_result(ReduceOp op, T to, T from) {
  if (op == ReduceOp::Min) return std::fmin(to, from);
  if (op == ReduceOp::Max) return std::fmax(to, from);
  return to + from;
}

template <class T, class F>
void for_elements(uint8_t* to, const uint8_t* from, uint64_t bytes, F f) {
  for (uint64_t at = 0; at + sizeof(T) <= bytes; at += sizeof(T)) {
    T a, b;
    std::memcpy(&a, to + at, sizeof(T));
    std::memcpy(&b, from + at, sizeof(T));
    a = f(a, b);
    std::memcpy(to + at, &a, sizeof(T));
  }
}

// The sum of two 16-bit numbers is exact in double precision.
uint16_t half_result(ReduceOp op, const model::FloatFormat& format, uint16_t to, uint16_t from) {
  const auto widen = [&](uint16_t bits) { return std::bit_cast<double>(model::convert(model::kF64, format, bits)); };
  const double result = float_result(op, widen(to), widen(from));
  return static_cast<uint16_t>(model::convert(format, model::kF64, std::bit_cast<uint64_t>(result)));
}

}  // namespace

void reduce_bytes(ReduceOp op, ReduceType type, uint8_t* to, const uint8_t* from, uint64_t bytes) {
  const auto integers = [&](auto zero) {
    using T = decltype(zero);
    for_elements<T>(to, from, bytes, [op](T a, T b) { return integer_result(op, a, b); });
  };
  const auto floats = [&](auto zero) {
    using T = decltype(zero);
    for_elements<T>(to, from, bytes, [op](T a, T b) { return float_result(op, a, b); });
  };
  const auto halves = [&](const model::FloatFormat& format) {
    for_elements<uint16_t>(to, from, bytes, [&](uint16_t a, uint16_t b) { return half_result(op, format, a, b); });
  };
  switch (type) {
    case ReduceType::U32:
    case ReduceType::B32:
      return integers(uint32_t{});
    case ReduceType::S32:
      return integers(int32_t{});
    case ReduceType::U64:
    case ReduceType::B64:
      return integers(uint64_t{});
    case ReduceType::S64:
      return integers(int64_t{});
    case ReduceType::F16:
      return halves(model::kF16);
    case ReduceType::BF16:
      return halves(model::kBf16);
    case ReduceType::F32:
      return floats(float{});
    case ReduceType::F64:
      return floats(double{});
  }
}

}  // namespace ptxrun::ops
