// ld, ldu, st.
#include <cstring>

#include "exec/machine.h"
#include "memory/warp_access.h"
#include "ops/lanes.h"
#include "ops/memory_modifiers.h"

namespace ptxrun {
namespace {

struct LoadStoreModifiers {
  MemoryModifiers memory;
  uint8_t element_bytes;
  uint8_t count;
  bool is_signed;  // ld: the register gets the sign
  bool read_only;  // ld.nc
  uint32_t used;   // ld: bytes whose value matters; 0: all of them
};

// op(0) is the address, op(1...) the elements; `_` skips one.
void load_element(Warp& warp, const Operand& op, int lane, const uint8_t* from, const LoadStoreModifiers& mods) {
  uint64_t value = 0;
  if (from != nullptr) std::memcpy(&value, from, mods.element_bytes);
  if (mods.is_signed) {
    const int shift = 64 - 8 * mods.element_bytes;
    value = static_cast<uint64_t>(static_cast<int64_t>(value << shift) >> shift);
  }
  if (op.bits == 64) {
    warp.out<uint64_t>(op)[lane] = value;
  } else {
    warp.out<uint32_t>(op)[lane] = static_cast<uint32_t>(op.bits == 16 ? value & 0xFFFF : value);
  }
}

void load_wide(Warp& warp, const Operand& op, int lane, const uint8_t* from) {
  uint64_t value[2] = {};
  if (from != nullptr) std::memcpy(value, from, sizeof(value));
  warp.out<uint64_t>(op)[lane] = value[0];
  warp.out_high(op)[lane] = value[1];
}

template <class T>
void load_rows(Warp& warp, const Operand& op, LaneMask active, const LaneBytes& bytes, size_t at) {
  T* d = warp.out<T>(op);
  for_lanes(active, [&](int lane) {
    T value{};
    if (bytes.at[lane] != nullptr) std::memcpy(&value, bytes.at[lane] + at, sizeof(T));
    d[lane] = value;
  });
}

void load_operand(Warp& warp, const Operand& op, LaneMask active, const LaneBytes& bytes, size_t at,
                  const LoadStoreModifiers& mods) {
  if (mods.element_bytes == 4 && op.bits == 32) return load_rows<uint32_t>(warp, op, active, bytes, at);
  if (mods.element_bytes == 8) return load_rows<uint64_t>(warp, op, active, bytes, at);
  for_lanes(active, [&](int lane) {
    const uint8_t* from = bytes.at[lane] != nullptr ? bytes.at[lane] + at : nullptr;
    if (mods.element_bytes == 16) {
      load_wide(warp, op, lane, from);
    } else {
      load_element(warp, op, lane, from, mods);
    }
  });
}

Step run_load(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<LoadStoreModifiers>();
  LaneBytes bytes;
  const uint32_t size = uint32_t{mods.element_bytes} * mods.count;
  if (mods.memory.order != Order::Weak) ++warp.polls;
  touch_lanes(warp, active, instr.op(0), mods.memory.space, size, Access::Kind::Read, mods.memory.order,
              mods.memory.scope, bytes, mods.used, mods.read_only);
  for (int i = 0; i < mods.count; ++i) {
    const Operand& op = instr.op(1 + i);
    if (op.kind == Operand::Kind::None) continue;
    load_operand(warp, op, active, bytes, static_cast<size_t>(i) * mods.element_bytes, mods);
  }
  return Step::Next;
}

// A kernel parameter: the same for all lanes.
Step run_load_param(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<LoadStoreModifiers>();
  Access access;
  access.site = &warp.site(active);
  const uint64_t offset = lane_address(warp, instr.op(0), std::countr_zero(active));
  const uint32_t size = uint32_t{mods.element_bytes} * mods.count;
  const uint8_t* from = warp.machine.memory.touch(access, warp.cta.grid->params, offset, size);
  LaneBytes bytes;
  for (int i = 0; i < mods.count; ++i) {
    const Operand& op = instr.op(1 + i);
    if (op.kind == Operand::Kind::None) continue;
    for (auto& at : bytes.at) at = const_cast<uint8_t*>(from);
    load_operand(warp, op, active, bytes, static_cast<size_t>(i) * mods.element_bytes, mods);
  }
  return Step::Next;
}

void store_element(Warp& warp, const Operand& op, int lane, uint8_t* to, int bytes) {
  if (bytes == 16) {
    std::memcpy(to, &warp.in<uint64_t>(op)[lane], 8);
    std::memcpy(to + 8, &warp.in_high(op)[lane], 8);
  } else if (op.bits == 64) {
    std::memcpy(to, &warp.in<uint64_t>(op)[lane], static_cast<size_t>(bytes));
  } else {
    std::memcpy(to, &warp.in<uint32_t>(op)[lane], static_cast<size_t>(bytes));
  }
}

Step run_store(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<LoadStoreModifiers>();
  LaneBytes bytes;
  const uint32_t size = uint32_t{mods.element_bytes} * mods.count;
  touch_lanes(warp, active, instr.op(0), mods.memory.space, size, Access::Kind::Write, mods.memory.order,
              mods.memory.scope, bytes);
  for (int i = 0; i < mods.count; ++i) {
    const Operand& op = instr.op(1 + i);
    const size_t at = static_cast<size_t>(i) * mods.element_bytes;
    for_lanes(active, [&](int lane) {
      if (bytes.at[lane] != nullptr) store_element(warp, op, lane, bytes.at[lane] + at, mods.element_bytes);
    });
  }
  return Step::Next;
}

// Decoding --------------------------------------------------------------------------------------------------------

LoadStoreModifiers take_modifiers(Decoder& d, bool* has_policy) {
  LoadStoreModifiers mods{};
  mods.memory = take_memory_modifiers(d, has_policy);
  const int vector = d.modifiers().take_one({"v2", "v4", "v8"});
  mods.count = static_cast<uint8_t>(vector < 0 ? 1 : 2 << vector);
  const Type type = d.modifiers().take_type();
  mods.element_bytes = static_cast<uint8_t>(type_bits(type) / 8);
  mods.is_signed = type_is_signed(type);
  if (mods.element_bytes == 0 || mods.element_bytes * mods.count > 32) d.unknown();
  return mods;
}

void read_element(Decoder& d, const ast::Operand& operand, int bits) {
  bits >= 64 ? d.read(operand, bits) : d.read_any(operand, bits);
}

void write_element(Decoder& d, const ast::Operand& operand, int bits) {
  if (operand.kind == ast::OperandKind::Sink) {
    d.none();
  } else if (bits >= 64) {
    d.write(operand, bits);
  } else {
    d.write_any(operand);
  }
}

template <class F>
void for_vector(Decoder& d, const ast::Operand& operand, int count, F&& f) {
  if (count == 1 && operand.kind != ast::OperandKind::Vector) return f(operand);
  if (static_cast<int>(operand.parts.size()) != count) d.unknown("a vector of another size was expected");
  for (const ast::Operand& part : operand.parts) f(part);
}

// Bytes of the pragma in front, without elements that go nowhere; 0: all.
uint32_t used_bytes(const Decoder& d, const LoadStoreModifiers& mods) {
  const uint64_t element = (uint64_t{1} << mods.element_bytes) - 1;
  const uint64_t all = (uint64_t{1} << mods.element_bytes * mods.count) - 1;
  uint64_t used = all & d.source().used_bytes;
  const std::vector<ast::Operand>& parts = d.operand(0).parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind == ast::OperandKind::Sink) used &= ~(element << i * mods.element_bytes);
  }
  return used == all ? 0 : static_cast<uint32_t>(used);
}

void decode_load(Decoder& d, Instr& out) {
  out.op_class = OpClass::Memory;
  bool has_policy = false;
  LoadStoreModifiers mods = take_modifiers(d, &has_policy);
  mods.read_only = d.modifiers().take("nc");
  const bool entry_param = mods.memory.space == Space::Param && d.is_entry_param(d.operand(1));
  if (mods.memory.space == Space::Param && d.is_local_param(d.operand(1))) mods.memory.space = Space::Local;
  d.address(d.operand(1));
  const int bits = 8 * mods.element_bytes;
  for_vector(d, d.operand(0), mods.count, [&](const ast::Operand& part) { write_element(d, part, bits); });
  if (has_policy) d.read(d.operand(2), 64);
  mods.used = used_bytes(d, mods);
  out.set_mods(mods);
  out.handler = entry_param ? run_load_param : run_load;
  d.finish(has_policy ? 3 : 2);
}

void decode_store(Decoder& d, Instr& out) {
  out.op_class = OpClass::Memory;
  bool has_policy = false;
  LoadStoreModifiers mods = take_modifiers(d, &has_policy);
  if (mods.memory.space == Space::Param) mods.memory.space = Space::Local;
  d.address(d.operand(0));
  const int bits = 8 * mods.element_bytes;
  for_vector(d, d.operand(1), mods.count, [&](const ast::Operand& part) { read_element(d, part, bits); });
  if (has_policy) d.read(d.operand(2), 64);
  out.set_mods(mods);
  out.handler = run_store;
  d.finish(has_policy ? 3 : 2);
}

const Family families[] = {{"ld", decode_load}, {"ldu", decode_load}, {"st", decode_store}};

}  // namespace
}  // namespace ptxrun
