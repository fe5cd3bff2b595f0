// atom, red, fence, membar.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "exec/machine.h"
#include "memory/warp_access.h"
#include "model/approximations.h"
#include "ops/float_lane.h"
#include "ops/lanes.h"
#include "ops/memory_modifiers.h"

namespace ptxrun {
namespace {

enum class AtomicOp : uint8_t { Add, Min, Max, And, Or, Xor, Exch, Cas, Inc, Dec };

struct AtomicModifiers {
  MemoryModifiers memory;
  AtomicOp op;
  Type type;
  uint8_t count;  // elements of a vector
  uint8_t element_bytes;
  bool returns;  // atom
};

// Old value, operand and, for cas, the comparison value -> new value; all as bits of the type.
using Update = uint64_t (*)(uint64_t old, uint64_t b, uint64_t c);

template <class T, AtomicOp kOp>
uint64_t update_integer(uint64_t old_bits, uint64_t b_bits, uint64_t c_bits) {
  const auto old = static_cast<T>(old_bits), b = static_cast<T>(b_bits), c = static_cast<T>(c_bits);
  using U = std::make_unsigned_t<T>;
  T value{};
  if constexpr (kOp == AtomicOp::Add) value = static_cast<T>(static_cast<U>(old) + static_cast<U>(b));
  if constexpr (kOp == AtomicOp::Min) value = std::min(old, b);
  if constexpr (kOp == AtomicOp::Max) value = std::max(old, b);
  if constexpr (kOp == AtomicOp::And) value = old & b;
  if constexpr (kOp == AtomicOp::Or) value = old | b;
  if constexpr (kOp == AtomicOp::Xor) value = old ^ b;
  if constexpr (kOp == AtomicOp::Exch) value = b;
  if constexpr (kOp == AtomicOp::Cas) value = old == b ? c : old;
  if constexpr (kOp == AtomicOp::Inc) value = old >= b ? T{0} : static_cast<T>(old + 1);
  if constexpr (kOp == AtomicOp::Dec) value = old == 0 || old > b ? b : static_cast<T>(old - 1);
  return static_cast<U>(value);
}

template <class T, size_t... i>
Update choose_update(AtomicOp op, std::index_sequence<i...>) {
  static constexpr Update table[] = {update_integer<T, AtomicOp{i}>...};
  return table[static_cast<size_t>(op)];
}

uint64_t add_f32(uint64_t old, uint64_t b, uint64_t) {
  const float sum = std::bit_cast<float>(static_cast<uint32_t>(old)) + std::bit_cast<float>(static_cast<uint32_t>(b));
  return std::bit_cast<uint32_t>(result<false, false>(sum));
}

uint64_t add_f64(uint64_t old, uint64_t b, uint64_t) {
  return std::bit_cast<uint64_t>(std::bit_cast<double>(old) + std::bit_cast<double>(b));
}

template <bool kBf16>
uint64_t half_value(AtomicOp op, uint64_t old, uint64_t b) {
  constexpr const model::FloatFormat& kFormat = kBf16 ? model::kBf16 : model::kF16;
  const double x = model::to_double(kFormat, old), y = model::to_double(kFormat, b);
  if (op == AtomicOp::Add) return model::from_double(kFormat, x + y);
  if (x != x || y != y) return x != x ? (y != y ? kFormat.canonical_nan : b) : old;
  const bool less = x < y || (x == y && std::signbit(x) && !std::signbit(y));
  return less == (op == AtomicOp::Min) ? old : b;
}

template <bool kBf16, AtomicOp kOp, int kElements>
uint64_t update_half(uint64_t old, uint64_t b, uint64_t) {
  uint64_t packed = 0;
  for (int shift = 0; shift < 16 * kElements; shift += 16) {
    packed |= half_value<kBf16>(kOp, old >> shift & 0xFFFF, b >> shift & 0xFFFF) << shift;
  }
  return packed;
}

template <bool kBf16, int kElements>
Update half_update(AtomicOp op) {
  if (op == AtomicOp::Add) return update_half<kBf16, AtomicOp::Add, kElements>;
  if (op == AtomicOp::Min) return update_half<kBf16, AtomicOp::Min, kElements>;
  return op == AtomicOp::Max ? update_half<kBf16, AtomicOp::Max, kElements> : nullptr;
}

Update update_of(AtomicOp op, Type type) {
  switch (type) {
    case Type::F32:
      return op == AtomicOp::Add ? add_f32 : nullptr;
    case Type::F64:
      return op == AtomicOp::Add ? add_f64 : nullptr;
    case Type::F16:
      return half_update<false, 1>(op);
    case Type::F16x2:
      return half_update<false, 2>(op);
    case Type::BF16:
      return half_update<true, 1>(op);
    case Type::BF16x2:
      return half_update<true, 2>(op);
    default:
      break;
  }
  Update update = nullptr;
  with_integer(type, [&](auto zero) { update = choose_update<decltype(zero)>(op, std::make_index_sequence<10>()); });
  return update;
}

uint64_t element_of(Warp& warp, const Operand& op, int lane) {
  return op.bits == 64 ? warp.in<uint64_t>(op)[lane] : warp.in<uint32_t>(op)[lane];
}

struct AtomicHandler {
  AtomicModifiers mods;
  Update update;
};
static_assert(sizeof(AtomicHandler) <= 48);

// op(0) is the address; then count old values (atom), count operands, count values of cas. Lanes act one after another.
Step run_atomic(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& [mods, update] = instr.mods<AtomicHandler>();
  LaneBytes bytes;
  touch_lanes(warp, active, instr.op(0), mods.memory.space, uint32_t{mods.element_bytes} * mods.count,
              Access::Kind::Atomic, mods.memory.order, mods.memory.scope, bytes);
  const int first_b = mods.returns ? 1 + mods.count : 1;
  bool changed = false;
  for_lanes(active, [&](int lane) {
    uint8_t* at = bytes.at[lane];
    for (int i = 0; i < mods.count; ++i) {
      uint64_t old = 0;
      if (at != nullptr) {
        std::memcpy(&old, at + i * mods.element_bytes, mods.element_bytes);
        const uint64_t b = element_of(warp, instr.op(first_b + i), lane);
        const uint64_t c = mods.op == AtomicOp::Cas ? element_of(warp, instr.op(first_b + mods.count + i), lane) : 0;
        const uint64_t value = update(old, b, c);
        changed |= value != old;
        std::memcpy(at + i * mods.element_bytes, &value, mods.element_bytes);
      }
      const Operand& target = instr.op(1 + i);
      if (!mods.returns || target.kind == Operand::Kind::None) continue;
      if (target.bits == 64) {
        warp.out<uint64_t>(target)[lane] = old;
      } else {
        warp.out<uint32_t>(target)[lane] = static_cast<uint32_t>(old);
      }
    }
  });
  if (changed) {
    warp.machine.memory.note_change(&warp.agent);
  } else {
    ++warp.polls;
  }
  return Step::Next;
}

// exch and cas of 128 bits.
Step run_atomic_128(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<AtomicHandler>().mods;
  LaneBytes bytes;
  touch_lanes(warp, active, instr.op(0), mods.memory.space, 16, Access::Kind::Atomic, mods.memory.order,
              mods.memory.scope, bytes);
  bool changed = false;
  for_lanes(active, [&](int lane) {
    uint64_t old[2] = {};
    if (uint8_t* at = bytes.at[lane]) {
      std::memcpy(old, at, 16);
      const auto value = [&](int i, int half) {
        return half ? warp.in_high(instr.op(i))[lane] : warp.in<uint64_t>(instr.op(i))[lane];
      };
      const bool is_cas = mods.op == AtomicOp::Cas;
      if (!is_cas || (old[0] == value(2, 0) && old[1] == value(2, 1))) {
        const uint64_t fresh[2] = {value(is_cas ? 3 : 2, 0), value(is_cas ? 3 : 2, 1)};
        std::memcpy(at, fresh, 16);
        changed = true;
      }
    }
    if (instr.op(1).kind == Operand::Kind::None) return;
    warp.out<uint64_t>(instr.op(1))[lane] = old[0];
    warp.out_high(instr.op(1))[lane] = old[1];
  });
  changed ? warp.machine.memory.note_change(&warp.agent) : void(++warp.polls);
  return Step::Next;
}

template <bool kReturns>
void decode_atomic(Decoder& d, Instr& out) {
  out.op_class = OpClass::Atomic;
  AtomicHandler handler{};
  AtomicModifiers& mods = handler.mods;
  bool has_policy = false;
  mods.memory = take_memory_modifiers(d, &has_policy);
  if (mods.memory.order == Order::Weak) mods.memory.order = Order::Relaxed;
  if (mods.memory.scope == Scope::None) mods.memory.scope = Scope::Gpu;
  const int op = d.modifiers().take_one({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
  if (op < 0) d.unknown();
  mods.op = static_cast<AtomicOp>(op);
  mods.returns = kReturns;
  d.modifiers().take("noftz");
  const int vector = d.modifiers().take_one({"v2", "v4", "v8"});
  mods.count = static_cast<uint8_t>(vector < 0 ? 1 : 2 << vector);
  mods.type = d.modifiers().take_type();
  const int bits = type_bits(mods.type);
  mods.element_bytes = static_cast<uint8_t>(bits / 8);
  const bool wide = mods.type == Type::B128 && kReturns && (mods.op == AtomicOp::Exch || mods.op == AtomicOp::Cas);
  handler.update = wide ? nullptr : update_of(mods.op, mods.type);
  if (!wide && handler.update == nullptr) d.unknown();
  const size_t address = kReturns ? 1 : 0;
  d.address(d.operand(address));
  if (kReturns) d.write_vector(d.operand(0), bits, mods.count);
  d.read_vector(d.operand(address + 1), bits, mods.count);
  if (mods.op == AtomicOp::Cas) d.read_vector(d.operand(address + 2), bits, mods.count);
  const size_t operands = address + (mods.op == AtomicOp::Cas ? 3 : 2);
  if (has_policy) d.read(d.operand(operands), 64);
  out.set_mods(handler);
  out.handler = wide ? run_atomic_128 : run_atomic;
  d.finish(operands + (has_policy ? 1 : 0));
}

// fence, membar ---------------------------------------------------------------------------------------------------

struct FenceModifiers {
  Scope scope;
  Order order;
};

Step run_fence(Warp& warp, const Instr& instr, LaneMask) {
  const auto& mods = instr.mods<FenceModifiers>();
  warp.machine.checker->fence(warp, mods.scope, mods.order);
  return Step::Next;
}

void decode_fence(Decoder& d, Instr& out) {
  out.op_class = OpClass::Barrier;
  constexpr Order kOrders[] = {Order::AcqRel, Order::AcqRel, Order::Acquire, Order::Release};
  const int order = d.modifiers().take_one({"sc", "acq_rel", "acquire", "release"});
  constexpr Scope kScopes[] = {Scope::Cta, Scope::Cluster, Scope::Gpu, Scope::Sys};
  const int scope = d.modifiers().take_one({"cta", "cluster", "gpu", "sys"});
  if (scope < 0) d.unknown();
  out.set_mods(FenceModifiers{kScopes[scope], order < 0 ? Order::AcqRel : kOrders[order]});
  out.handler = run_fence;
  d.finish(0);
}

void decode_membar(Decoder& d, Instr& out) {
  out.op_class = OpClass::Barrier;
  constexpr Scope kScopes[] = {Scope::Cta, Scope::Gpu, Scope::Sys};
  const int scope = d.modifiers().take_one({"cta", "gl", "sys"});
  if (scope < 0) d.unknown();
  out.set_mods(FenceModifiers{kScopes[scope], Order::AcqRel});
  out.handler = run_fence;
  d.finish(0);
}

const Family families[] = {
    {"atom", decode_atomic<true>}, {"red", decode_atomic<false>}, {"fence", decode_fence}, {"membar", decode_membar}};

}  // namespace
}  // namespace ptxrun
