// What a decode function sees of the instruction being decoded: its modifiers and its operands.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decode/instruction.h"
#include "decode/program.h"
#include "text/ast.h"

namespace ptxrun {

enum class Type : uint8_t {
  Pred,
  B8,
  B16,
  B32,
  B64,
  B128,
  U8,
  U16,
  U32,
  U64,
  S8,
  S16,
  S32,
  S64,
  F16,
  BF16,
  F16x2,
  BF16x2,
  F32,
  F64,
  F32x2,
  U16x2,
  S16x2,
  Other
};
int type_bits(Type type);
bool type_is_float(Type type);
bool type_is_signed(Type type);
// Other if the word names none of the types above.
Type parse_type(std::string_view word);

// The dot-separated parts after the mnemonic; each is taken once.
class Modifiers {
 public:
  explicit Modifiers(std::string_view opcode);
  std::string_view mnemonic() const { return mnemonic_; }
  // Takes the word wherever it stands; false if it is not there.
  bool take(std::string_view word);
  // Takes the first of the words that is there: its index, or -1.
  int take_one(std::initializer_list<std::string_view> words);
  // Takes the first / last part that is left; empty if there is none.
  std::string_view take_front();
  std::string_view take_back();
  // Takes the first part that is left and names a type; Other if there is none.
  Type take_type();
  bool empty() const { return parts_.empty(); }
  const std::vector<std::string_view>& left() const { return parts_; }

 private:
  std::string_view mnemonic_;
  std::vector<std::string_view> parts_;
};

class ProgramBuilder;

class Decoder {
 public:
  Decoder(ProgramBuilder& builder, const ast::Instruction& source, Instr& out);

  const ast::Instruction& source() const { return source_; }
  Modifiers& modifiers() { return modifiers_; }
  size_t operand_count() const { return source_.operands.size(); }
  const ast::Operand& operand(size_t i) const;

  // Operands of the instruction in the order in which the handler indexes them (Instr::op). Each call appends and
  // returns the index. `bits`: width of the access; immediates are encoded in it, integers of floats as written.
  int read(const ast::Operand& operand, int bits);
  // Any width of up to 64 bits: the handler looks at Operand::bits (ld, st, cvt: the register may be wider than the
  // type).
  int read_any(const ast::Operand& operand, int immediate_bits);
  int write_any(const ast::Operand& operand);
  int write(const ast::Operand& operand, int bits);       // _ gives Kind::None
  int read_write(const ast::Operand& operand, int bits);  // accumulators
  int read_predicate(const ast::Operand& operand);        // a register or an immediate 0/1; may be negated
  int write_predicate(const ast::Operand& operand);       // _ gives Kind::None
  // Without the checks and marks around the handler: for registers of asynchronous operations (Warp::hold).
  int untracked_vector(const ast::Operand& operand, int bits, int count = 0, int* found = nullptr);
  int none();  // an absent optional operand
  // [base + imm]: one operand of 32 or 64 bits with its offset. Symbols become their address.
  int address(const ast::Operand& operand);
  // {a, b, ...} or a single operand: appends all, returns the index of the first; `count` is how many there must be
  // (0: any). The number is put into *found.
  int read_vector(const ast::Operand& operand, int bits, int count = 0, int* found = nullptr);
  int write_vector(const ast::Operand& operand, int bits, int count = 0, int* found = nullptr);
  int read_write_vector(const ast::Operand& operand, int bits, int count = 0, int* found = nullptr);

  // Immediate integers that are part of the encoding (not registers).
  int64_t immediate(const ast::Operand& operand) const;
  bool is_immediate(const ast::Operand& operand) const;
  bool is_address(const ast::Operand& operand) const { return operand.kind == ast::OperandKind::Address; }

  uint32_t label(const ast::Operand& operand) const;        // instruction index in Kernel::code
  uint32_t branch_list(const ast::Operand& operand) const;  // index into Kernel::branch_lists
  // Whether the address names a parameter of the entry, or a .param variable of a function or a call (local memory).
  bool is_entry_param(const ast::Operand& operand) const;
  bool is_local_param(const ast::Operand& operand) const;

  // Ends decoding of the spelling with an error that cites line and text.
  [[noreturn]] void unknown(const std::string& reason = "spelling is not modelled") const;
  // unknown() unless all modifiers have been taken and the number of operands is within the limits.
  void finish(size_t min_operands, size_t max_operands);
  void finish(size_t operands) { finish(operands, operands); }

  // Register width of an operand that was appended.
  int bits_of(int index) const { return operands_[static_cast<size_t>(index)].bits; }
  ProgramBuilder& builder() { return builder_; }
  void commit();
  // Runs behind the instruction: the second half of a call, which fetches the return values.
  std::optional<Instr> follower;

 private:
  enum class Use : uint8_t { Read, Write, ReadWrite, Untracked };
  int append(const Operand& operand);
  int access(const ast::Operand& operand, int bits, Use use);
  int vector(const ast::Operand& operand, int bits, int count, int* found, Use use);
  Operand constant(uint64_t value, int bits);
  Operand name(const ast::Operand& operand, int bits);
  uint64_t immediate_bits(const ast::Operand& operand, int bits) const;

  ProgramBuilder& builder_;
  const ast::Instruction& source_;
  Instr& out_;
  Modifiers modifiers_;
  std::vector<Operand> operands_;
  std::vector<uint32_t> reads_, writes_, predicate_reads_, predicate_writes_;
};

}  // namespace ptxrun
