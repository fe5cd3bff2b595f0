// Shadow of 16 bytes of memory: who wrote and read which of them last. Equal histories are one object, so a range that
// was always used as a whole costs one evaluation an access, however long it is.
#pragma once

#include <cstdint>
#include <vector>

#include "check/view.h"

namespace ptxrun {
struct Instr;
}

namespace ptxrun::check {

inline constexpr int kCellBytes = 16;
using ByteMask = uint16_t;
inline constexpr ByteMask kAllBytes = 0xFFFF;

// By which way memory is reached. Tensor: tensor memory, accessed by tcgen05 instructions only.
enum class Path : uint8_t { Generic, Async, Tensor, TensorMap };
enum class CellSpace : uint8_t { Shared, Global, Tensor };

// How the bytes of an asynchronous operand are arranged. What was written in one way makes no sense read in another.
enum class Layout : uint8_t { Unknown, Linear, Swizzle32, Swizzle64, Swizzle128, Accumulator, ScaleFactors };

// One access as the rules see it.
struct Touch {
  Epoch epoch;   // recorded in the cells: the warp's, or that of the pipe that announces the completion
  Epoch issuer;  // the warp, up to this instruction
  const View* seen = nullptr;
  Path path = Path::Generic;
  CellSpace space = CellSpace::Shared;
  bool strong = false;                      // atomics, volatile and relaxed accesses do not race with each other
  bool object = false;                      // mbarrier operation
  bool in_order = false;                    // operations of the epoch's agent take effect in the order of issue
  bool tracked = true;                      // false: only initialisation is followed
  bool lenient = false;                     // undefined bytes may be read: their use is judged elsewhere
  uint32_t read_only_from = kMaxCtaSerial;  // by ld.global.nc: CTAs from this one on may not have written the bytes
  Layout layout = Layout::Unknown;
  const Instr* instr = nullptr;
  uint16_t warp = 0;
};

struct Entry {
  Epoch epoch;
  const Instr* instr = nullptr;
  ByteMask mask = 0;
  uint16_t warp = 0;
  Path path = Path::Generic;
  bool strong = false;
  bool object = false;
  Layout layout = Layout::Unknown;
  Clock many;  // reads by several agents, instead of `epoch`
  bool is_many() const { return !many.empty(); }
};

enum class Relation : uint8_t { Ordered, Unfenced, Unordered };

struct Conflict {
  enum class Kind : uint8_t { Uninitialised, Object, Layout, ReadOnly, Access };
  Kind kind = Kind::Access;
  Relation relation = Relation::Unordered;
  bool writes = false;        // the new access
  bool other_writes = false;  // the recorded one
  ByteMask mask = 0;
  Entry other;
  Layout layout = Layout::Unknown;  // of the new access
};

struct Cell {
  ByteMask initialised = 0;
  std::vector<Entry> writes;  // disjoint masks
  std::vector<Entry> reads;
};

// Undefine: the bytes count as never written, whoever has used them.
enum class Effect : uint8_t { Read, Write, Update, Undefine };

// How the new access stands to a recorded one that conflicts with it.
Relation relate(const Entry& before, bool before_writes, const Touch& touch);

// The cell after an access to the bytes of `mask`; conflicts are appended.
void evaluate(const Cell& before, const Touch& touch, Effect effect, ByteMask mask, Cell& after,
              std::vector<Conflict>& conflicts);

}  // namespace ptxrun::check
