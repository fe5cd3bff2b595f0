// ldmatrix and stmatrix: 8x8 matrices of 16-bit elements between shared memory and a warp's registers.
#include <cstring>

#include "decode/decoder.h"
#include "decode/registry.h"
#include "exec/warp.h"
#include "memory/warp_access.h"
#include "ops/spaces.h"

namespace ptxrun::ops {

namespace {

constexpr int kMatrixRows = 8;
constexpr uint32_t kRowBytes16 = 16;

struct Mods {
  uint8_t matrices;
  bool transposed;
  bool stores;
  Space space;
};

// Lane 8 m + r names row r of matrix m. Thread t holds elements 2 (t % 4) and the next of row t / 4, or with .trans of
// column t / 4.
struct Element {
  int row;
  int column;
};

Element element_of(int thread, int half, bool transposed) {
  const int across = thread / 4, along = 2 * (thread % 4) + half;
  return transposed ? Element{along, across} : Element{across, along};
}

// Bytes of an element; nullptr where the row's address was bad.
uint8_t* element_at(const LaneBytes& rows, int matrix, Element element) {
  uint8_t* row = rows.at[kMatrixRows * matrix + element.row];
  return row == nullptr ? nullptr : row + 2 * element.column;
}

void load(Warp& warp, const Instr& instr, const Mods& mods, const LaneBytes& rows) {
  for (int matrix = 0; matrix < mods.matrices; ++matrix) {
    uint32_t* words = warp.out<uint32_t>(instr.op(matrix));
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      uint16_t halves[2] = {};
      for (int half = 0; half < 2; ++half) {
        const uint8_t* from = element_at(rows, matrix, element_of(lane, half, mods.transposed));
        if (from != nullptr) std::memcpy(&halves[half], from, sizeof(uint16_t));
      }
      words[lane] = halves[0] | static_cast<uint32_t>(halves[1]) << 16;
    }
  }
}

void store(Warp& warp, const Instr& instr, const Mods& mods, const LaneBytes& rows) {
  for (int matrix = 0; matrix < mods.matrices; ++matrix) {
    const uint32_t* words = warp.in<uint32_t>(instr.op(matrix));
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      for (int half = 0; half < 2; ++half) {
        const auto value = static_cast<uint16_t>(words[lane] >> (16 * half));
        uint8_t* to = element_at(rows, matrix, element_of(lane, half, mods.transposed));
        if (to != nullptr) std::memcpy(to, &value, sizeof(value));
      }
    }
  }
}

Step run(Warp& warp, const Instr& instr, LaneMask) {
  const Mods& mods = instr.mods<Mods>();
  const int rows = kMatrixRows * mods.matrices;
  const LaneMask naming = rows == kWarpLanes ? kAllLanes : (LaneMask{1} << rows) - 1;
  LaneBytes bytes;
  touch_lanes(warp, naming, instr.op(mods.matrices), mods.space, kRowBytes16,
              mods.stores ? Access::Kind::Write : Access::Kind::Read, Order::Weak, Scope::None, bytes);
  if (mods.stores) {
    store(warp, instr, mods, bytes);
  } else {
    load(warp, instr, mods, bytes);
  }
  return Step::Next;
}

void decode_matrix_move(Decoder& d, Instr& out) {
  out.op_class = OpClass::Memory;
  out.convergence = Convergence::Aligned;
  Modifiers& modifiers = d.modifiers();
  Mods mods{};
  mods.stores = modifiers.mnemonic() == "stmatrix";
  if (!modifiers.take("sync") || !modifiers.take("aligned") || !modifiers.take("m8n8")) d.unknown();
  const int count = modifiers.take_one({"x1", "x2", "x4"});
  if (count < 0) d.unknown();
  mods.matrices = static_cast<uint8_t>(1 << count);
  mods.transposed = modifiers.take("trans");
  mods.space = take_shared_space(modifiers);
  if (!modifiers.take("b16")) d.unknown();
  const ast::Operand& registers = d.operand(mods.stores ? 1 : 0);
  const ast::Operand& address = d.operand(mods.stores ? 0 : 1);
  if (mods.stores) {
    d.read_vector(registers, 32, mods.matrices);
  } else {
    d.write_vector(registers, 32, mods.matrices);
  }
  d.address(address);
  d.finish(2);
  out.set_mods(mods);
  out.handler = run;
}

const Family ldmatrix_family({"ldmatrix", "stmatrix"}, decode_matrix_move);

}  // namespace

}  // namespace ptxrun::ops
