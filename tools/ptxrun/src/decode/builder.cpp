#include "decode/builder.h"

#include <algorithm>
#include <cstring>

#include "decode/decoder.h"
#include "decode/registry.h"
#include "decode/target.h"
#include "decode/undefined.h"
#include "memory/memory.h"

namespace ptxrun {
namespace {

uint32_t align_up(uint64_t value, uint64_t align) { return static_cast<uint32_t>((value + align - 1) / align * align); }

int register_bits(const std::string& type) {
  return type == "pred" ? 1 : std::max(8, static_cast<int>(8 * ast::type_bytes(type)));
}

// A call with return values is followed by an instruction that fetches them.
uint32_t emitted(const ast::Instruction& source) {
  const bool is_call = source.opcode == "call" || source.opcode.starts_with("call.");
  return is_call && !source.operands.empty() && source.operands[0].kind == ast::OperandKind::Group ? 2 : 1;
}

}  // namespace

ProgramBuilder::ProgramBuilder(Program& program, Kernel& kernel, std::vector<Problem>* problems)
    : program_(program), kernel_(kernel), problems_(problems) {}

void ProgramBuilder::build(const ast::Function& entry) {
  kernel_.name = entry.name;
  kernel_.line = entry.line;
  std::copy(entry.maxntid, entry.maxntid + 3, kernel_.maxntid);
  std::copy(entry.reqntid, entry.reqntid + 3, kernel_.reqntid);
  std::copy(entry.cluster, entry.cluster + 3, kernel_.cluster);
  kernel_.min_ctas = entry.min_ctas;
  kernel_.max_registers = entry.max_registers;
  kernel_.static_shared = kSharedBase;
  kernel_.predicates = 1;
  bind_module();
  layout_params(entry);
  decode_function(entry);
  finish_calls();
  place_dynamic_shared();
  finish_constants();
  settle_undefined_bytes(kernel_);
}

void ProgramBuilder::layout_params(const ast::Function& entry) {
  uint32_t at = 0;
  for (const ast::Variable& param : entry.params) {
    at = align_up(at, param.align);
    const auto bytes = static_cast<uint32_t>(param.bytes);
    kernel_.params.push_back({param.name, at, bytes, param.align, param.type});
    globals_[param.name] = {Binding::Kind::EntryParam, 0, at};
    at += bytes;
  }
  kernel_.param_bytes = at;
}

void ProgramBuilder::bind_module() {
  for (size_t i = 0; i < program_.variables.size(); ++i) {
    globals_[program_.variables[i]->name] = {Binding::Kind::Global, 64, static_cast<uint32_t>(i)};
  }
  for (const ast::Variable& variable : program_.module.variables) {
    if (variable.space == ast::StateSpace::Shared) add_shared(variable, globals_);
  }
}

void ProgramBuilder::add_shared(const ast::Variable& variable, Names& names) {
  if (variable.bytes == 0) {
    kernel_.uses_dynamic_shared = true;
    kernel_.dynamic_shared_align = std::max(kernel_.dynamic_shared_align, variable.align);
    names[variable.name] = {Binding::Kind::Shared, 1, 0};
    return;
  }
  const uint32_t at = align_up(kernel_.static_shared, variable.align);
  kernel_.static_shared = static_cast<uint32_t>(at + variable.bytes);
  names[variable.name] = {Binding::Kind::Shared, 0, at};
}

uint32_t ProgramBuilder::add_local(uint64_t bytes, uint32_t align) {
  const uint32_t at = align_up(kernel_.local_bytes, std::max<uint32_t>(align, 8));
  kernel_.local_bytes = static_cast<uint32_t>(at + bytes);
  return at;
}

void ProgramBuilder::bind_variable(const ast::Variable& variable, Names& names) {
  switch (variable.space) {
    case ast::StateSpace::Reg: {
      const int bits = register_bits(variable.type);
      if (bits == 1) {
        names[variable.name] = {Binding::Kind::Predicate, 1, kernel_.predicates++};
        return;
      }
      names[variable.name] = {Binding::Kind::Register, static_cast<uint8_t>(bits), kernel_.rows};
      for (int i = 0; i < std::max(1, bits / 32); ++i) kernel_.row_names.push_back(variable.name);
      kernel_.rows = static_cast<uint32_t>(kernel_.row_names.size());
      return;
    }
    case ast::StateSpace::Shared:
      return add_shared(variable, names);
    case ast::StateSpace::Param:
      names[variable.name] = {Binding::Kind::LocalParam, 0, add_local(variable.bytes, variable.align)};
      return;
    default:
      names[variable.name] = {Binding::Kind::Local, 0, add_local(variable.bytes, variable.align)};
  }
}

void ProgramBuilder::bind_labels(const ast::Function& function, Names& names) {
  std::vector<uint32_t> code_of;
  auto at = static_cast<uint32_t>(kernel_.code.size());
  for (const ast::Instruction& source : function.body) {
    code_of.push_back(at);
    at += emitted(source);
  }
  code_of.push_back(at);
  for (const ast::Label& label : function.labels) {
    names[label.name] = {Binding::Kind::Label, 0, code_of[label.target]};
  }
  for (const ast::BranchTargets& list : function.branch_targets) {
    names[list.name] = {Binding::Kind::BranchTargets, 0, static_cast<uint32_t>(kernel_.branch_lists.size())};
    std::vector<uint32_t>& targets = kernel_.branch_lists.emplace_back();
    for (const std::string& label : list.labels) {
      const auto found = names.find(label);
      if (found == names.end()) throw PtxError(function.line, label, "branch target that is no label");
      targets.push_back(found->second.index);
    }
  }
}

void ProgramBuilder::bind_function(const ast::Function& function, Names& names) {
  if (!function.is_entry) {
    const std::vector<uint32_t>& offsets = parameter_offsets(function);
    size_t i = 0;
    for (const auto* list : {&function.params, &function.returns}) {
      for (const ast::Variable& param : *list) names[param.name] = {Binding::Kind::LocalParam, 0, offsets[i++]};
    }
  }
  for (const ast::Variable& variable : function.variables) bind_variable(variable, names);
  bind_labels(function, names);
}

const std::vector<uint32_t>& ProgramBuilder::parameter_offsets(const ast::Function& function) {
  const auto [entry, is_new] = parameter_offsets_.try_emplace(&function);
  if (is_new) {
    for (const auto* list : {&function.params, &function.returns}) {
      for (const ast::Variable& param : *list) entry->second.push_back(add_local(param.bytes, param.align));
    }
  }
  return entry->second;
}

const Binding* ProgramBuilder::find(const std::string& name) const {
  for (const Names* names : {&names_, &globals_}) {
    const auto found = names->find(name);
    if (found != names->end()) return &found->second;
  }
  return nullptr;
}

const ast::Function* ProgramBuilder::find_function(const std::string& name) const {
  const ast::Function* declaration = nullptr;
  for (const ast::Function& function : program_.module.functions) {
    if (function.name != name) continue;
    if (function.has_body) return &function;
    declaration = &function;
  }
  return declaration;
}

uint32_t ProgramBuilder::constant_row(uint64_t value, int bits) {
  const auto [entry, is_new] = constant_rows_.try_emplace({value, bits});
  if (!is_new) return entry->second;
  entry->second = static_cast<uint32_t>(kernel_.constants.size() / kWarpLanes);
  const int rows = std::max(1, bits / 32);
  kernel_.constants.resize(kernel_.constants.size() + static_cast<size_t>(rows) * kWarpLanes, 0);
  uint32_t* words = kernel_.constants.data() + size_t{entry->second} * kWarpLanes;
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    if (bits <= 32) {
      words[lane] = static_cast<uint32_t>(value);
    } else {
      std::memcpy(words + 2 * lane, &value, sizeof(value));
    }
  }
  return entry->second;
}

uint32_t ProgramBuilder::start_row(StartValue kind, int bits, int64_t value, int64_t offset) {
  const auto [entry, is_new] = start_rows_.try_emplace({kind, bits, value, offset}, kernel_.rows);
  if (is_new) {
    kernel_.start_rows.push_back({kind, static_cast<uint8_t>(bits), kernel_.rows, value, offset});
    for (int i = 0; i < std::max(1, bits / 32); ++i) kernel_.row_names.push_back("(start value)");
    kernel_.rows = static_cast<uint32_t>(kernel_.row_names.size());
  }
  return entry->second;
}

void ProgramBuilder::decode_function(const ast::Function& function) {
  function_start_[&function] = static_cast<uint32_t>(kernel_.code.size());
  names_.clear();
  bind_function(function, names_);
  kernel_.code.reserve(kernel_.code.size() + function.body.size() + 1);
  for (const ast::Instruction& source : function.body) decode_one(source);
  static const ast::Instruction implicit_return = [] {
    ast::Instruction source;
    source.text = source.opcode = "ret";
    return source;
  }();
  decode_one(implicit_return);
}

void ProgramBuilder::decode_one(const ast::Instruction& source) {
  const size_t expected = kernel_.code.size() + emitted(source);
  Instr instr;
  instr.source = &source;
  std::optional<Instr> follower;
  try {
    Decoder decoder(*this, source, instr);
    const DecodeFunction decode = find_family(source.opcode);
    if (decode == nullptr) decoder.unknown("unknown instruction");
    const std::string refusal = refused_by_target(program_.module.target, source.opcode);
    if (!refusal.empty()) decoder.unknown(refusal);
    decode(decoder, instr);
    decoder.commit();
    instr.opcode_id = opcode_id(instr, source.opcode);
    follower = decoder.follower;
  } catch (const PtxError& error) {
    if (problems_ == nullptr) throw;
    problems_->emplace_back(source.opcode, error.what());
  }
  kernel_.code.push_back(instr);
  if (kernel_.code.size() < expected) kernel_.code.push_back(follower.value_or(instr));
}

// Functions are decoded behind the entry, in the order of their first call; each call then learns where its callee is.
void ProgramBuilder::finish_calls() {
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Call call = calls_[i];
    if (!function_start_.contains(call.callee)) decode_function(*call.callee);
    CallModifiers modifiers = kernel_.code[call.instr].mods<CallModifiers>();
    modifiers.target = function_start_[call.callee];
    kernel_.code[call.instr].set_mods(modifiers);
  }
}

void ProgramBuilder::place_dynamic_shared() {
  const uint32_t start = align_up(kernel_.static_shared, kernel_.dynamic_shared_align);
  for (StartRow& row : kernel_.start_rows) {
    if (row.kind == StartValue::SharedAddress && row.value == kDynamicShared) row.value = start;
  }
  if (kernel_.uses_dynamic_shared) kernel_.static_shared = start;
}

void ProgramBuilder::finish_constants() {
  if (kernel_.constants.empty()) constant_row(0, 32);
}

uint32_t ProgramBuilder::opcode_id(const Instr& instr, const std::string& spelling) {
  const auto [entry, is_new] = program_.opcode_ids.try_emplace(spelling, program_.opcodes.size());
  if (is_new) program_.opcodes.push_back({spelling, instr.op_class});
  return entry->second;
}

}  // namespace ptxrun
