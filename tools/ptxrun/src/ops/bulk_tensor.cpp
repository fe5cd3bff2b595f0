// cp.async.bulk.tensor and cp.reduce.async.bulk.tensor: boxes of tensors by tensor maps.
#include <cstring>

#include "check/finding.h"
#include "decode/registry.h"
#include "exec/warp.h"
#include "model/tensor_box.h"
#include "ops/bulk_copy.h"
#include "ops/format.h"
#include "ops/spaces.h"

namespace ptxrun::ops {

namespace {

constexpr uint32_t kOffsetMask = (1u << kSharedRankShift) - 1;
constexpr int kMaxCoordinates = 5;

struct TensorMods {
  int8_t map = 0, shared = 0, coordinates = 0, barrier = -1, mask = -1;  // operands
  uint8_t rank = 0;
  bool gather = false;  // tile::gather4, tile::scatter4
  bool pair = false;    // cta_group::2
  bool reduces = false;
  ReduceOp reduce = ReduceOp::None;
};

// The map as the copy engine sees it: read when the instruction is issued.
bool read_map(Warp& warp, uint64_t address, LaneMask lane, TensorMapHandle& map) {
  if (!check_aligned(warp, address, 64, "tensor map", lane)) return false;
  const Place place = warp.machine.memory.find(Space::Generic, address, &warp.cta);
  Access access;
  access.proxy = Proxy::Tensor;
  access.site = &warp.site(lane);
  const uint8_t* bytes =
      place.region ? warp.machine.memory.touch(access, *place.region, place.offset, sizeof(map)) : nullptr;
  if (!bytes) {
    if (!place.region) warp.machine.memory.report_bad(access, nullptr, address, sizeof(map));
    return false;
  }
  auto& checks = check::checks(warp.machine);
  checks.issue(warp, check::Pipe(), Proxy::Async).read_tensor_map(*place.region, place.offset, sizeof(map));
  std::memcpy(&map, bytes, sizeof(map));
  if (map.magic == kTensorMapMagic) return true;
  warp.report(code::kBadDescriptor, "no tensor map at " + hex(address), lane);
  return false;
}

bool check_map(Warp& warp, const TensorMapHandle& map, const TensorMods& mods, uint32_t shared, LaneMask lane) {
  const int rank = mods.gather ? 2 : mods.rank;
  if (map.rank != rank) {
    warp.report(code::kBadDescriptor,
                "a tensor map of " + std::to_string(map.rank) + " dimensions, coordinates for " + std::to_string(rank),
                lane);
    return false;
  }
  const model::Problems problems = model::check_box_copy(map, shared);
  for (const model::Problem& problem : problems) {
    warp.report(code::kBadDescriptor, std::string(problem.name) + ": " + problem.detail, lane);
  }
  return problems.empty();
}

ReduceType element_type(const TensorMapHandle& map) {
  // By CUtensorMapDataType.
  constexpr ReduceType kTypes[] = {ReduceType::U32, ReduceType::U32, ReduceType::U32, ReduceType::S32, ReduceType::U64,
                                   ReduceType::S64, ReduceType::F16, ReduceType::F32, ReduceType::F64, ReduceType::BF16,
                                   ReduceType::F32, ReduceType::F32, ReduceType::F32};
  return map.dtype < std::size(kTypes) ? kTypes[map.dtype] : ReduceType::U32;
}

// Runs between global memory and offsets in shared memory.
std::vector<model::BoxRun> make_runs(Warp& warp, const Instr& instr, const TensorMapHandle& map, uint32_t shared,
                                     int lane) {
  const TensorMods& mods = instr.mods<TensorMods>();
  int32_t coordinates[kMaxCoordinates] = {};
  for (int i = 0; i < mods.rank; ++i) {
    coordinates[i] = static_cast<int32_t>(lane_value(warp, instr.op(mods.coordinates + i), lane));
  }
  std::vector<model::BoxRun> runs;
  if (mods.gather) {
    model::gather4_runs(map, coordinates, shared, runs);
  } else {
    model::box_runs(map, coordinates, shared, runs);
  }
  return runs;
}

Place global_place(Warp& warp, const model::BoxRun& run, LaneMask lane) {
  const Place place = warp.machine.memory.find(Space::Global, run.global, &warp.cta);
  if (place.region) return place;
  Access access;
  access.site = &warp.site(lane);
  warp.machine.memory.report_bad(access, nullptr, run.global, run.bytes);
  return {};
}

void load_one(Warp& warp, const Instr& instr, int lane) {
  const TensorMods& mods = instr.mods<TensorMods>();
  const LaneMask mask = LaneMask{1} << lane;
  const uint64_t shared = lane_value(warp, instr.op(mods.shared), lane);
  TensorMapHandle map;
  if (!read_map(warp, lane_value(warp, instr.op(mods.map), lane), mask, map)) return;
  const auto offset = static_cast<uint32_t>(shared) & kOffsetMask;
  if (!check_map(warp, map, mods, offset, mask)) return;
  const auto ctas = mods.mask >= 0 ? static_cast<uint32_t>(lane_value(warp, instr.op(mods.mask), lane)) & 0xFFFF : 0;
  if (mods.mask >= 0 && ctas == 0) {
    warp.report(code::kBadOperand, "multicast to no CTA", mask);
    return;
  }
  Receivers receivers;
  const uint64_t barrier = lane_value(warp, instr.op(mods.barrier), lane);
  if (!find_receivers(warp, shared, barrier, ctas, mods.pair, mask, receivers)) return;
  auto copy = std::make_unique<BulkCopy>();
  model::fill_pattern(map, copy->fill.data());
  copy->layout = layout_of(map.swizzle);
  uint64_t bytes = 0;
  for (const model::BoxRun& run : make_runs(warp, instr, map, offset, lane)) {
    const Place place = run.inside ? global_place(warp, run, mask) : Place();
    copy->runs.push_back({place.region, place.offset, nullptr, run.shared, run.bytes});
    bytes += run.bytes;
  }
  issue_load(warp, lane, std::move(copy), receivers, bytes);
}

void store_one(Warp& warp, const Instr& instr, int lane) {
  const TensorMods& mods = instr.mods<TensorMods>();
  const LaneMask mask = LaneMask{1} << lane;
  const uint64_t shared = lane_value(warp, instr.op(mods.shared), lane);
  TensorMapHandle map;
  if (!read_map(warp, lane_value(warp, instr.op(mods.map), lane), mask, map)) return;
  const Place source = warp.machine.memory.find(Space::Shared, shared, &warp.cta);
  const auto offset = static_cast<uint32_t>(shared) & kOffsetMask;
  if (!source.region || !check_map(warp, map, mods, offset, mask)) return;
  auto copy = std::make_unique<BulkCopy>();
  copy->reduce = mods.reduce;
  copy->type = element_type(map);
  for (const model::BoxRun& run : make_runs(warp, instr, map, offset, lane)) {
    if (!run.inside) continue;
    const Place place = global_place(warp, run, mask);
    if (place.region) copy->runs.push_back({source.region, run.shared, place.region, place.offset, run.bytes});
  }
  issue_store(warp, lane, std::move(copy));
}

Step run_load(Warp& warp, const Instr& instr, LaneMask active) {
  for_lanes(active, [&](int lane) { load_one(warp, instr, lane); });
  return Step::Next;
}

Step run_store(Warp& warp, const Instr& instr, LaneMask active) {
  if (instr.mods<TensorMods>().reduce == ReduceOp::None) active = without_repetitions(warp, instr, active);
  for_lanes(active, [&](int lane) { store_one(warp, instr, lane); });
  return Step::Next;
}

Step run_prefetch(Warp& warp, const Instr& instr, LaneMask active) {
  for_lanes(active, [&](int lane) {
    TensorMapHandle map;
    read_map(warp, lane_value(warp, instr.op(instr.mods<TensorMods>().map), lane), LaneMask{1} << lane, map);
  });
  return Step::Next;
}

// [map, {x, y, ...}]
void decode_map(Decoder& d, const ast::Operand& operand, TensorMods& mods) {
  if (!d.is_address(operand) || operand.parts.size() != 1) d.unknown("a tensor map and its coordinates were expected");
  ast::Operand base = operand;
  base.parts.clear();
  mods.map = static_cast<int8_t>(d.address(base));
  int found = 0;
  mods.coordinates = static_cast<int8_t>(d.read_vector(operand.parts[0], 32, 0, &found));
  if (found != (mods.gather ? 5 : mods.rank)) d.unknown("wrong number of coordinates");
  mods.rank = static_cast<uint8_t>(found);
}

void decode_dimensions(Decoder& d, TensorMods& mods) {
  mods.rank = static_cast<uint8_t>(d.modifiers().take_one({"1d", "2d", "3d", "4d", "5d"}) + 1);
  if (mods.rank == 0) d.unknown();
  mods.gather = d.modifiers().take("tile::gather4") || d.modifiers().take("tile::scatter4");
  d.modifiers().take("tile");
}

void decode_tensor(Decoder& d, Instr& out) {
  out.op_class = OpClass::Copy;
  Modifiers& modifiers = d.modifiers();
  TensorMods mods;
  if (modifiers.take("reduce")) {
    mods.reduce = take_reduce_op(modifiers);
    if (mods.reduce == ReduceOp::None) d.unknown();
  }
  for (const char* word : {"async", "bulk", "tensor"}) modifiers.take(word);
  decode_dimensions(d, mods);
  const bool to_global = !modifiers.left().empty() && modifiers.left().front() == "global";
  if (!modifiers.take("global")) d.unknown();
  if (modifiers.take_one({"shared::cluster", "shared::cta"}) < 0) d.unknown();
  const bool hint = modifiers.take("L2::cache_hint");
  const bool multicast = modifiers.take("multicast::cluster");
  mods.pair = modifiers.take("cta_group::2");
  modifiers.take("cta_group::1");
  if (!modifiers.take(to_global ? "bulk_group" : "mbarrier::complete_tx::bytes")) d.unknown();
  size_t next = 2;
  if (to_global) {
    decode_map(d, d.operand(0), mods);
    mods.shared = static_cast<int8_t>(d.address(d.operand(1)));
  } else {
    mods.shared = static_cast<int8_t>(d.address(d.operand(0)));
    decode_map(d, d.operand(1), mods);
    mods.barrier = static_cast<int8_t>(d.address(d.operand(next++)));
    if (multicast) mods.mask = static_cast<int8_t>(d.read(d.operand(next++), 16));
  }
  if (hint) d.read(d.operand(next++), 64);
  d.finish(next);
  out.set_mods(mods);
  out.handler = to_global ? run_store : run_load;
}

void decode_prefetch(Decoder& d, Instr& out) {
  out.op_class = OpClass::Copy;
  for (const char* word : {"async", "bulk", "prefetch", "tensor"}) d.modifiers().take(word);
  TensorMods mods;
  decode_dimensions(d, mods);
  d.modifiers().take("L2");
  d.modifiers().take("global");
  const bool hint = d.modifiers().take("L2::cache_hint");
  decode_map(d, d.operand(0), mods);
  if (hint) d.read(d.operand(1), 64);
  d.finish(hint ? 2 : 1);
  out.set_mods(mods);
  out.handler = run_prefetch;
}

const Family tensor_family({"cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor"}, decode_tensor);
const Family prefetch_family({"cp.async.bulk.prefetch.tensor"}, decode_prefetch);

}  // namespace

}  // namespace ptxrun::ops
