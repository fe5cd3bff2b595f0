#include "decode/program.h"

#include <map>

#include "decode/builder.h"
#include "decode/load_results.h"

namespace ptxrun {
Program::Program(ast::Module parsed) : module(std::move(parsed)) {
  for (ast::Function& function : module.functions) name_load_results(function);
  for (const ast::Variable& variable : module.variables) {
    if (variable.space == ast::StateSpace::Global || variable.space == ast::StateSpace::Const) {
      variables.push_back(&variable);
    }
  }
}

const Kernel* Program::kernel(const std::string& name) {
  for (const auto& kernel : kernels) {
    if (kernel->name == name) return kernel.get();
  }
  for (const ast::Function& function : module.functions) {
    if (!function.is_entry || !function.has_body || function.name != name) continue;
    auto kernel = std::make_unique<Kernel>();
    ProgramBuilder(*this, *kernel, nullptr).build(function);
    kernels.push_back(std::move(kernel));
    return kernels.back().get();
  }
  return nullptr;
}

std::vector<CensusEntry> census(const ast::Module& module) {
  Program program(module);
  std::map<std::string, CensusEntry> entries;
  std::vector<Problem> problems;
  for (const ast::Function& function : program.module.functions) {
    for (const ast::Instruction& instruction : function.body) {
      CensusEntry& entry = entries[instruction.opcode];
      entry.spelling = instruction.opcode;
      ++entry.count;
    }
    if (!function.is_entry || !function.has_body) continue;
    Kernel kernel;
    ProgramBuilder(program, kernel, &problems).build(function);
  }
  for (const Problem& problem : problems) entries[problem.first].problem = problem.second;
  std::vector<CensusEntry> result;
  for (auto& [spelling, entry] : entries) result.push_back(std::move(entry));
  return result;
}

std::vector<std::unique_ptr<Kernel>> kernel_interfaces(const ast::Module& module) {
  Program program(module);
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (ast::Function& function : program.module.functions) {
    if (!function.is_entry || !function.has_body) continue;
    function.body.clear();
    function.labels.clear();
    function.branch_targets.clear();
    kernels.push_back(std::make_unique<Kernel>());
    ProgramBuilder(program, *kernels.back(), nullptr).build(function);
  }
  return kernels;
}

}  // namespace ptxrun
