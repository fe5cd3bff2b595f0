// tensormap.*: maps that a kernel changes itself. The fields are those of the handle.
#include <cstring>

#include "check/checks.h"
#include "check/finding.h"
#include "decode/decoder.h"
#include "decode/registry.h"
#include "exec/warp.h"
#include "ops/spaces.h"
#include "shim/tensor_map_handle.h"

namespace ptxrun::ops {

namespace {

enum class Field : int8_t { Address, Rank, Box, Dim, Stride, ElementStride, ElementType, Interleave, Swizzle, Fill };

struct ReplaceMods {
  Space space;
  Field field;
  uint8_t ordinal = 0;
  int8_t value = -1;  // operand; -1: immediate
  uint8_t immediate = 0;
};

uint8_t* touch(Warp& warp, Access::Kind kind, Space space, uint64_t address, uint64_t bytes, LaneMask lane) {
  Access access;
  access.kind = kind;
  access.agent = &warp.agent;
  access.site = &warp.site(lane);
  return warp.machine.memory.touch(access, space, address, bytes, &warp.cta);
}

void replace(TensorMapHandle& map, const ReplaceMods& mods, uint64_t value) {
  switch (mods.field) {
    case Field::Address:
      map.base = value;
      break;
    case Field::Rank:
      map.rank = static_cast<uint8_t>(value + 1);
      break;
    case Field::Box:
      map.box[mods.ordinal] = static_cast<uint16_t>(value);
      break;
    case Field::Dim:
      map.dims[mods.ordinal] = value;
      break;
    case Field::Stride:
      map.strides[mods.ordinal] = value;
      break;
    case Field::ElementStride:
      map.element_strides[mods.ordinal] = static_cast<uint8_t>(value);
      break;
    case Field::ElementType:
      map.dtype = static_cast<uint8_t>(value);
      break;
    case Field::Interleave:
      map.interleave = static_cast<uint8_t>(value);
      break;
    case Field::Swizzle:
      map.swizzle = static_cast<uint8_t>(value);
      break;
    case Field::Fill:
      map.oob_fill = static_cast<uint8_t>(value);
      break;
  }
}

Step run_replace(Warp& warp, const Instr& instr, LaneMask active) {
  const ReplaceMods& mods = instr.mods<ReplaceMods>();
  for_lanes(active, [&](int lane) {
    const LaneMask mask = LaneMask{1} << lane;
    const uint64_t address = lane_value(warp, instr.op(0), lane);
    TensorMapHandle map;
    const uint8_t* from = touch(warp, Access::Kind::Read, mods.space, address, sizeof(map), mask);
    if (!from) return;
    std::memcpy(&map, from, sizeof(map));
    if (map.magic != kTensorMapMagic) {
      warp.report(code::kBadDescriptor, "tensormap.replace on bytes that are no tensor map", mask);
      return;
    }
    replace(map, mods, mods.value >= 0 ? lane_value(warp, instr.op(mods.value), lane) : mods.immediate);
    uint8_t* to = touch(warp, Access::Kind::Write, mods.space, address, sizeof(map), mask);
    if (to) std::memcpy(to, &map, sizeof(map));
  });
  return Step::Next;
}

// The warp copies a map to global memory together, and makes it visible to the tensormap proxy.
Step run_copy(Warp& warp, const Instr& instr, LaneMask active) {
  const int lane = std::countr_zero(active);
  uint8_t bytes[sizeof(TensorMapHandle)];
  const uint8_t* from =
      touch(warp, Access::Kind::Read, Space::Shared, lane_value(warp, instr.op(1), lane), sizeof(bytes), active);
  if (!from) return Step::Next;
  std::memcpy(bytes, from, sizeof(bytes));
  uint8_t* to =
      touch(warp, Access::Kind::Write, Space::Global, lane_value(warp, instr.op(0), lane), sizeof(bytes), active);
  if (to) std::memcpy(to, bytes, sizeof(bytes));
  check::checks(warp.machine).fence_tensormap(warp);
  return Step::Next;
}

void decode_replace(Decoder& d, Instr& out) {
  Modifiers& modifiers = d.modifiers();
  modifiers.take("replace");
  modifiers.take("tile");
  const int field =
      modifiers.take_one({"global_address", "rank", "box_dim", "global_dim", "global_stride", "element_stride",
                          "elemtype", "interleave_layout", "swizzle_mode", "fill_mode"});
  if (field < 0) d.unknown();
  ReplaceMods mods{};
  mods.field = static_cast<Field>(field);
  mods.space = modifiers.take("global") ? Space::Global : take_shared_space(modifiers);
  if (!modifiers.take("b1024")) d.unknown();
  const bool wide = modifiers.take("b64");
  if (!wide && !modifiers.take("b32")) d.unknown();
  const bool indexed = mods.field >= Field::Box && mods.field <= Field::ElementStride;
  d.address(d.operand(0));
  if (indexed) mods.ordinal = static_cast<uint8_t>(d.immediate(d.operand(1)));
  if (mods.ordinal >= (mods.field == Field::Stride ? 4 : 5)) d.unknown("ordinal out of range");
  const ast::Operand& value = d.operand(indexed ? 2 : 1);
  mods.value = -1;
  if (mods.field >= Field::ElementType) {
    mods.immediate = static_cast<uint8_t>(d.immediate(value));
  } else {
    mods.value = static_cast<int8_t>(d.read(value, wide ? 64 : 32));
  }
  d.finish(indexed ? 3 : 2);
  out.set_mods(mods);
  out.handler = run_replace;
}

void decode_copy(Decoder& d, Instr& out) {
  for (const char* word :
       {"cp_fenceproxy", "global", "shared::cta", "tensormap::generic", "release", "sync", "aligned"}) {
    if (!d.modifiers().take(word)) d.unknown();
  }
  d.modifiers().take_one({"cta", "cluster", "gpu", "sys"});
  d.address(d.operand(0));
  d.address(d.operand(1));
  if (d.immediate(d.operand(2)) != sizeof(TensorMapHandle)) d.unknown("128 bytes");
  d.finish(3);
  out.convergence = Convergence::Aligned;
  out.handler = run_copy;
}

void decode_tensormap(Decoder& d, Instr& out) {
  out.op_class = OpClass::Copy;
  const std::string_view kind = d.modifiers().empty() ? std::string_view() : d.modifiers().left().front();
  if (kind == "replace") return decode_replace(d, out);
  if (kind == "cp_fenceproxy") return decode_copy(d, out);
  d.unknown();
}

const Family family({"tensormap"}, decode_tensormap);

}  // namespace

}  // namespace ptxrun::ops
