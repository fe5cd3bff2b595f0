// Builds one kernel: register rows, constants, memory layout, code of the entry and of the functions that it calls.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "decode/program.h"

namespace ptxrun {

// What a name in a function's body means.
struct Binding {
  enum class Kind : uint8_t {
    Register,
    Predicate,
    Shared,
    Global,
    EntryParam,
    Local,
    LocalParam,
    Label,
    BranchTargets
  };
  Kind kind;
  uint8_t bits = 0;
  uint32_t index = 0;  // row, predicate, byte offset, variable, instruction, list
};

// Stands for the address of dynamic shared memory until all static variables have theirs.
constexpr int64_t kDynamicShared = int64_t{1} << 40;

// Spelling and reason of an instruction that cannot be decoded.
using Problem = std::pair<std::string, std::string>;

class ProgramBuilder {
 public:
  // With `problems`, instructions that are not modelled are collected there instead of thrown.
  ProgramBuilder(Program& program, Kernel& kernel, std::vector<Problem>* problems);

  void build(const ast::Function& entry);

  // For Decoder, about the function being decoded.
  const Binding* find(const std::string& name) const;
  uint32_t constant_row(uint64_t value, int bits);
  uint32_t start_row(StartValue kind, int bits, int64_t value, int64_t offset);
  const ast::Function* find_function(const std::string& name) const;
  // Byte offsets, in a thread's local memory, of a function's parameters, then of its return values.
  const std::vector<uint32_t>& parameter_offsets(const ast::Function& function);
  // The instruction being decoded is a call of the function: its target is filled in once known.
  void add_call(const ast::Function& callee) { calls_.push_back({&callee, kernel_.code.size()}); }

  Program& program() { return program_; }
  Kernel& kernel() { return kernel_; }

 private:
  using Names = std::unordered_map<std::string, Binding>;
  struct Call {
    const ast::Function* callee;
    size_t instr;
  };

  void layout_params(const ast::Function& entry);
  void bind_module();
  void bind_function(const ast::Function& function, Names& names);
  void bind_variable(const ast::Variable& variable, Names& names);
  void bind_labels(const ast::Function& function, Names& names);
  uint32_t add_local(uint64_t bytes, uint32_t align);
  void add_shared(const ast::Variable& variable, Names& names);
  void place_dynamic_shared();
  void decode_function(const ast::Function& function);
  void decode_one(const ast::Instruction& source);
  void finish_calls();
  void finish_constants();
  uint32_t opcode_id(const Instr& instr, const std::string& spelling);

  Program& program_;
  Kernel& kernel_;
  std::vector<Problem>* problems_;
  Names globals_;
  Names names_;
  std::map<std::pair<uint64_t, int>, uint32_t> constant_rows_;
  std::map<std::tuple<StartValue, int, int64_t, int64_t>, uint32_t> start_rows_;
  std::vector<Call> calls_;
  std::map<const ast::Function*, uint32_t> function_start_;
  std::map<const ast::Function*, std::vector<uint32_t>> parameter_offsets_;
};

// A special register that does not change during a warp's life; clocks and the like belong to mov.
std::optional<StartValue> special_register(const std::string& name);

}  // namespace ptxrun
