// mma.sync on f16, bf16, fp8 and 8-bit integer elements.
#include <string>

#include "decode/decoder.h"
#include "decode/registry.h"
#include "exec/warp.h"
#include "model/fragments.h"
#include "model/mma_arithmetic.h"
#include "ops/mma_counters.h"

namespace ptxrun::ops {

namespace {

constexpr int kRows = 16;
constexpr int kColumns = 8;
constexpr int kMaxDepth = 32;
constexpr int kAccumulators = 4;  // a thread

struct ElementType {
  const char* name;
  uint8_t width;
  const model::FloatFormat* format;  // nullptr: an integer
  bool is_signed;
};
constexpr ElementType kElementTypes[] = {{"f16", 16, &model::kF16, true},  {"bf16", 16, &model::kBf16, true},
                                         {"e4m3", 8, &model::kE4m3, true}, {"e5m2", 8, &model::kE5m2, true},
                                         {"u8", 8, nullptr, false},        {"s8", 8, nullptr, true}};

struct Mods {
  const ElementType* a_type;
  const ElementType* b_type;
  uint8_t depth;
  uint8_t a_registers, b_registers, d_registers;
  bool f16_accumulators;
};

// A 32-bit register's elements, low ones first.
void unpack_register(uint32_t word, int width, uint16_t* elements) {
  const uint32_t mask = (1u << width) - 1;
  for (int i = 0; i < 32 / width; ++i) elements[i] = static_cast<uint16_t>((word >> (i * width)) & mask);
}

struct Tile {
  uint16_t a[kRows * kMaxDepth];
  uint16_t b[kColumns * kMaxDepth];
  uint32_t d[kRows * kColumns];
};

void gather_operands(const Warp& warp, const Instr& instr, const Mods& mods, Tile& tile) {
  const int width = mods.a_type->width, per_register = 32 / width;
  const int first_a = mods.d_registers, first_b = first_a + mods.a_registers;
  for (int index = 0; index < mods.a_registers; ++index) {
    const uint32_t* words = warp.in<uint32_t>(instr.op(first_a + index));
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      const model::MatrixIndex at = model::a_fragment(lane, index, per_register);
      unpack_register(words[lane], width, tile.a + at.row * mods.depth + at.column);
    }
  }
  for (int index = 0; index < mods.b_registers; ++index) {
    const uint32_t* words = warp.in<uint32_t>(instr.op(first_b + index));
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      const model::MatrixIndex at = model::b_fragment(lane, index, per_register);
      unpack_register(words[lane], width, tile.b + at.column * mods.depth + at.row);
    }
  }
}

// Calls f(word of the tile, operand offset, lane, half of a packed f16 register) for each accumulator.
template <class F>
void for_accumulators(bool f16, F&& f) {
  for (int index = 0; index < kAccumulators; ++index) {
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      const model::MatrixIndex at = model::accumulator_fragment(lane, index);
      f(at.row * kColumns + at.column, f16 ? index / 2 : index, lane, f16 ? index % 2 : 0);
    }
  }
}

void multiply(const Mods& mods, Tile& tile) {
  const model::StepShape shape{kRows, kColumns, mods.depth};
  const model::AccumulatorView d{tile.d, kColumns};
  if (mods.a_type->format == nullptr) {
    return model::dot_step_int8(shape, {tile.a, mods.a_type->is_signed}, {tile.b, mods.b_type->is_signed}, d);
  }
  model::AccumulationRule rule = model::kHopperRule;
  if (mods.f16_accumulators) rule.result = model::ResultFormat::kF16;
  model::dot_step(shape, {mods.a_type->format, tile.a}, {mods.b_type->format, tile.b}, d, true, rule);
}

Step run_mma(Warp& warp, const Instr& instr, LaneMask) {
  const Mods& mods = instr.mods<Mods>();
  Tile tile;
  gather_operands(warp, instr, mods, tile);
  const bool f16 = mods.f16_accumulators;
  const int first_c = mods.d_registers + mods.a_registers + mods.b_registers;
  for_accumulators(f16, [&](int at, int offset, int lane, int half) {
    tile.d[at] = warp.in<uint32_t>(instr.op(first_c + offset))[lane] >> (16 * half);
  });
  multiply(mods, tile);
  for_accumulators(f16, [&](int at, int offset, int lane, int half) {
    uint32_t& word = warp.out<uint32_t>(instr.op(offset))[lane];
    word = !f16 ? tile.d[at] : half == 0 ? tile.d[at] : (word & 0xFFFF) | tile.d[at] << 16;
  });
  count_step(warp, "mma.m16n8k" + std::to_string(mods.depth) + "." + mods.a_type->name);
  return Step::Next;
}

const ElementType& take_element_type(Decoder& d) {
  const std::string_view word = d.modifiers().take_front();
  for (const ElementType& type : kElementTypes) {
    if (word == type.name) return type;
  }
  d.unknown();
}

void decode_mma(Decoder& d, Instr& out) {
  out.op_class = OpClass::Mma;
  out.convergence = Convergence::Aligned;
  Modifiers& modifiers = d.modifiers();
  if (!modifiers.take("sync") || !modifiers.take("aligned")) d.unknown();
  constexpr uint8_t kDepths[] = {8, 16, 32};
  const int depth = modifiers.take_one({"m16n8k8", "m16n8k16", "m16n8k32"});
  if (depth < 0 || !modifiers.take("row") || !modifiers.take("col")) d.unknown();
  Mods mods{};
  mods.depth = kDepths[depth];
  const std::string_view d_type = modifiers.take_front();
  mods.f16_accumulators = d_type == "f16";
  mods.a_type = &take_element_type(d);
  mods.b_type = &take_element_type(d);
  const bool integers = mods.a_type->format == nullptr;
  if (d_type != (integers ? "s32" : mods.f16_accumulators ? "f16" : "f32")) d.unknown();
  if (modifiers.take_front() != d_type) d.unknown("accumulators of two types are not modelled");
  const int width = mods.a_type->width;
  if (mods.b_type->width != width || (mods.b_type->format == nullptr) != integers) d.unknown();
  if (width == 16 && mods.a_type != mods.b_type) d.unknown();
  if (mods.f16_accumulators && mods.a_type->format == &model::kBf16) d.unknown();
  if (mods.depth * width > 256) d.unknown();
  mods.b_registers = static_cast<uint8_t>(mods.depth * width / 128);
  mods.a_registers = static_cast<uint8_t>(2 * mods.b_registers);
  mods.d_registers = mods.f16_accumulators ? 2 : 4;
  if (mods.b_registers == 0) d.unknown();
  d.write_vector(d.operand(0), 32, mods.d_registers);
  d.read_vector(d.operand(1), 32, mods.a_registers);
  d.read_vector(d.operand(2), 32, mods.b_registers);
  d.read_vector(d.operand(3), 32, mods.d_registers);
  d.finish(4);
  out.set_mods(mods);
  out.handler = run_mma;
}

const Family mma_family({"mma.sync"}, decode_mma);

}  // namespace

}  // namespace ptxrun::ops
