// A decoded instruction: handler, operands resolved to rows of the register file, modifiers of its family.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <type_traits>

#include "text/ast.h"

namespace ptxrun {

class Warp;
struct Instr;

using LaneMask = uint32_t;
constexpr int kWarpLanes = 32;
constexpr LaneMask kAllLanes = ~LaneMask{0};

// What the warp's lanes of this execution do next. Lanes that were parked (Warp::park) stay where they are in any case.
enum class Step : uint8_t {
  Next,  // go on with the next instruction
  Jump,  // the handler has set the program counters (Warp::branch, call, ret, exit)
  Halt,  // trap: the run ends
};

// Guards are applied before: `active` holds the lanes that execute the instruction, never empty.
using Handler = Step (*)(Warp&, const Instr&, LaneMask active);

// A row holds one 32-bit word of the 32 lanes. Types up to 32 bits take one row, zero-extended; 64 bits take two rows
// as 32 x uint64_t; 128 bits take four rows, low half first.
constexpr int kRowBytes = 4 * kWarpLanes;

struct Operand {
  enum class Kind : uint8_t { None, Register, Constant, Predicate };
  Kind kind = Kind::None;
  bool negated = false;  // predicates: !p
  uint8_t bits = 0;      // of the declared register: 1 (predicate), 8, 16, 32, 64, 128
  uint32_t row = 0;      // register row, row of the kernel's constants, or predicate number
  int64_t offset = 0;    // of an address operand
};

// Instruction classes of the counters.
enum class OpClass : uint8_t { Alu, Fp, Convert, Memory, Atomic, Control, Warp, Barrier, Copy, Mma, Tmem, Special };
constexpr int kOpClasses = 12;
extern const char* const kOpClassNames[kOpClasses];

// Which lanes must have arrived before a .sync instruction runs.
enum class Convergence : uint8_t {
  None,
  Aligned,  // all live lanes of the warp
  Members,  // live lanes of the mask in operand `member_operand`
};

struct Instr {
  Handler handler = nullptr;
  uint32_t guard = kNoGuard;  // predicate number
  bool guard_negated = false;
  Convergence convergence = Convergence::None;
  OpClass op_class = OpClass::Alu;
  uint8_t member_operand = 0;
  uint16_t operand_count = 0;
  uint16_t reads = 0, writes = 0;  // rows of `touched` that must be initialised before, and are so afterwards
  uint32_t opcode_id = 0;          // index into Program::opcodes
  const Operand* operands = nullptr;
  const uint32_t* touched = nullptr;  // `reads` register rows, `writes` register rows, then predicates likewise
  uint16_t predicate_reads = 0, predicate_writes = 0;
  const ast::Instruction* source = nullptr;
  alignas(8) std::byte modifiers[48] = {};

  static constexpr uint32_t kNoGuard = ~0u;

  const Operand& op(int i) const { return operands[i]; }
  std::span<const Operand> ops(int first, int count) const { return {operands + first, static_cast<size_t>(count)}; }

  // Modifiers of the family: a trivially copyable struct of at most 48 bytes, set by the decode function.
  template <class T>
  const T& mods() const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(modifiers) && alignof(T) <= 8);
    return *std::launder(reinterpret_cast<const T*>(modifiers));
  }
  template <class T>
  T& set_mods(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(modifiers) && alignof(T) <= 8);
    return *new (modifiers) T(value);
  }
};

}  // namespace ptxrun
