#include "decode/undefined.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "decode/decoder.h"

namespace ptxrun {
namespace {

using ByteSet = uint8_t;  // of a 32-bit register
constexpr ByteSet kAllBytes = 0xF;

ByteSet low_bytes(int bits) { return bits == 8 ? 0x1 : bits == 16 ? 0x3 : kAllBytes; }

std::string_view last_part(std::string_view opcode) { return opcode.substr(opcode.rfind('.') + 1); }

class UndefinedBytes {
 public:
  explicit UndefinedBytes(Kernel& kernel) : kernel_(kernel), unwritten_(kernel.rows), undefined_(kernel.rows, 0) {}

  void run() {
    if (!find_unwritten()) return;
    while (spread()) {
    }
    for (Instr& instr : kernel_.code) settle(instr);
  }

 private:
  // Registers that are read but written by no instruction; false if there are none.
  bool find_unwritten() {
    std::vector<bool> read(kernel_.rows), written(kernel_.rows);
    for (const Instr& instr : kernel_.code) {
      for (int i = 0; i < instr.reads; ++i) read[instr.touched[i]] = true;
      for (int i = 0; i < instr.writes; ++i) written[instr.touched[instr.reads + i]] = true;
      // Operands that are not tracked may be results; of a copy the first one is. An instruction that could not be
      // decoded has none.
      const bool copies = instr.source->opcode.starts_with("mov.") || instr.source->opcode.starts_with("selp.");
      const int results = copies ? std::min<int>(instr.operand_count, 1) : instr.operand_count;
      for (int i = 0; i < results; ++i) {
        const Operand& op = instr.op(i);
        if (op.kind == Operand::Kind::Register && !is_tracked(instr, op.row)) written[op.row] = true;
      }
    }
    for (const StartRow& row : kernel_.start_rows) written[row.row] = true;
    bool any = false;
    for (uint32_t row = 0; row < kernel_.rows; ++row) {
      if (!read[row] || written[row]) continue;
      unwritten_[row] = true;
      undefined_[row] = kAllBytes;
      never_ready_ = row;
      any = true;
    }
    return any;
  }

  static bool is_tracked(const Instr& instr, uint32_t row) {
    const uint32_t* end = instr.touched + instr.reads + instr.writes;
    return std::find(instr.touched, end, row) != end;
  }

  ByteSet undefined(const Operand& op) const { return op.kind == Operand::Kind::Register ? undefined_[op.row] : 0; }
  std::optional<uint32_t> constant(const Operand& op) const {
    if (op.kind != Operand::Kind::Constant || op.bits > 32) return std::nullopt;
    return kernel_.constants[size_t{op.row} * kWarpLanes];
  }

  // Undefined bytes of the result of an instruction that only moves bytes; nothing for all others.
  std::optional<ByteSet> moved(const Instr& instr) const {
    if (instr.operand_count < 2 || instr.op(0).kind != Operand::Kind::Register || instr.op(0).bits > 32) return {};
    const std::string_view opcode = instr.source->opcode;
    if (opcode == "prmt.b32") return moved_by_prmt(instr);
    if (opcode == "and.b32" || opcode == "and.b16") return moved_by_and(instr);
    if (opcode == "or.b32" || opcode == "or.b16") {
      return static_cast<ByteSet>(undefined(instr.op(1)) | undefined(instr.op(2)));
    }
    if (opcode.starts_with("cvt.u") && instr.op(1).bits <= 32) {
      const std::string_view from = last_part(opcode);
      if (from[0] == 'u') return undefined(instr.op(1)) & low_bytes(type_bits(parse_type(from)));
    }
    return {};
  }

  std::optional<ByteSet> moved_by_prmt(const Instr& instr) const {
    const std::optional<uint32_t> selector = constant(instr.op(3));
    if (!selector) return {};
    const uint32_t sources = undefined(instr.op(1)) | static_cast<uint32_t>(undefined(instr.op(2))) << 4;
    ByteSet result = 0;
    for (int i = 0; i < 4; ++i) {
      if (sources >> (*selector >> 4 * i & 7) & 1) result |= static_cast<ByteSet>(1 << i);
    }
    return result;
  }

  std::optional<ByteSet> moved_by_and(const Instr& instr) const {
    std::optional<uint32_t> mask = constant(instr.op(2));
    if (!mask) return {};
    ByteSet kept = 0;
    for (int i = 0; i < 4; ++i) {
      if (*mask >> 8 * i & 0xFF) kept |= static_cast<ByteSet>(1 << i);
    }
    return undefined(instr.op(1)) & kept;
  }

  bool spread() {
    bool changed = false;
    for (const Instr& instr : kernel_.code) {
      const std::optional<ByteSet> result = moved(instr);
      if (!result || (*result & ~undefined_[instr.op(0).row]) == 0) continue;
      undefined_[instr.op(0).row] |= *result;
      changed = true;
    }
    return changed;
  }

  // Bytes of its sources that an instruction looks at: stores and conversions have a type for them.
  static ByteSet bytes_used(const Instr& instr) {
    const std::string_view opcode = instr.source->opcode;
    const bool narrows = opcode.starts_with("st.") || opcode.starts_with("cvt.");
    return narrows ? low_bytes(type_bits(parse_type(last_part(opcode)))) : kAllBytes;
  }

  // The touched rows belong to the kernel: a use of undefined bytes reads a register that is never ready, a harmless
  // move reads nothing of the kind.
  void settle(Instr& instr) {
    auto* rows = const_cast<uint32_t*>(instr.touched);
    const ByteSet used = moved(instr) ? 0 : bytes_used(instr);
    for (int i = 0; i < instr.reads; ++i) {
      const ByteSet bytes = undefined_[rows[i]];
      if (bytes & used) {
        if (!unwritten_[rows[i]]) rows[i] = never_ready_;
      } else if (unwritten_[rows[i]]) {
        const int left = instr.reads - i - 1 + instr.writes + instr.predicate_reads + instr.predicate_writes;
        std::copy(rows + i + 1, rows + i + 1 + left, rows + i);
        --instr.reads;
        --i;
      }
    }
  }

  Kernel& kernel_;
  std::vector<bool> unwritten_;     // by row
  std::vector<ByteSet> undefined_;  // by row
  uint32_t never_ready_ = 0;        // one of the unwritten registers
};

}  // namespace

void settle_undefined_bytes(Kernel& kernel) { UndefinedBytes(kernel).run(); }

}  // namespace ptxrun
