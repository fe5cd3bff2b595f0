#include "decode/load_results.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

namespace ptxrun {
namespace {

template <class F>
void for_names(ast::Operand& operand, const F& f) {
  if (!operand.name.empty()) f(operand.name);
  for (ast::Operand& part : operand.parts) for_names(part, f);
}

template <class F>
void for_names(ast::Instruction& instruction, const F& f) {
  if (!instruction.guard.empty()) f(instruction.guard);
  for (ast::Operand& operand : instruction.operands) for_names(operand, f);
}

bool is_copy(const ast::Instruction& instruction) {
  const auto is_register = [](const ast::Operand& op) {
    return op.kind == ast::OperandKind::Name && !op.negated && !op.minus && op.offset == 0;
  };
  return (instruction.opcode == "mov.b32" || instruction.opcode == "mov.u32") && instruction.guard.empty() &&
         instruction.operands.size() == 2 && is_register(instruction.operands[0]) &&
         is_register(instruction.operands[1]);
}

class LoadResults {
 public:
  explicit LoadResults(ast::Function& function)
      : function_(function), starts_block_(function.body.size() + 1), erased_(function.body.size()) {
    for (ast::Instruction& instruction : function.body) {
      for_names(instruction, [this](const std::string& name) { ++uses_[name]; });
    }
    for (const ast::Label& label : function.labels) starts_block_[label.target] = true;
  }

  void run() {
    bool found = false;
    for (size_t i = 0; i < function_.body.size(); ++i) {
      ast::Instruction& instruction = function_.body[i];
      if (instruction.operands.empty()) continue;
      if (instruction.opcode.starts_with("ld.")) drop_unused(instruction.operands[0]);
      if (!instruction.opcode.starts_with("tcgen05.ld.")) continue;
      for (ast::Operand& result : instruction.operands[0].parts) found |= rename(i, result);
    }
    if (found) compact();
  }

 private:
  // Elements of a vector load that no other operand names: compilers load neighbours that they do not need.
  void drop_unused(ast::Operand& results) {
    const auto is_unused = [this](const ast::Operand& result) {
      return result.kind == ast::OperandKind::Name && uses_.at(result.name) == 1;
    };
    if (std::all_of(results.parts.begin(), results.parts.end(), is_unused)) return;
    for (ast::Operand& result : results.parts) {
      if (is_unused(result)) result.kind = ast::OperandKind::Sink;
    }
  }

  // The copy of this result of the load at `load`, in the same basic block and with nothing between them that names the
  // copy's register.
  bool rename(size_t load, ast::Operand& result) {
    const auto uses = uses_.find(result.name);
    if (uses == uses_.end() || uses->second != 2) return false;
    for (size_t i = load + 1; i < function_.body.size() && !starts_block_[i]; ++i) {
      ast::Instruction& instruction = function_.body[i];
      if (instruction.opcode.starts_with("bra")) return false;
      bool is_use = false;
      for_names(instruction, [&](const std::string& name) { is_use |= name == result.name; });
      if (!is_use) continue;
      if (!is_copy(instruction)) return false;
      const std::string& copy = instruction.operands[0].name;
      if (is_named(copy, load, i)) return false;
      result.name = copy;
      erased_[i] = true;
      return true;
    }
    return false;
  }

  bool is_named(const std::string& name, size_t first, size_t end) {
    bool found = false;
    for (size_t i = first; i < end; ++i) {
      if (erased_[i]) continue;
      for_names(function_.body[i], [&](const std::string& other) { found |= other == name; });
    }
    return found;
  }

  void compact() {
    std::vector<uint32_t> moved(function_.body.size() + 1);
    std::vector<ast::Instruction> kept;
    for (size_t i = 0; i < function_.body.size(); ++i) {
      moved[i] = static_cast<uint32_t>(kept.size());
      if (!erased_[i]) kept.push_back(std::move(function_.body[i]));
    }
    moved.back() = static_cast<uint32_t>(kept.size());
    function_.body = std::move(kept);
    for (ast::Label& label : function_.labels) label.target = moved[label.target];
  }

  ast::Function& function_;
  std::unordered_map<std::string, int> uses_;
  std::vector<bool> starts_block_, erased_;  // by instruction
};

}  // namespace

void name_load_results(ast::Function& function) { LoadResults(function).run(); }

}  // namespace ptxrun
