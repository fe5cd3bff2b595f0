#include "decode/decoder.h"

#include <algorithm>
#include <bit>

#include "decode/builder.h"

namespace ptxrun {
namespace {

using ast::OperandKind;

bool same_rows(int a, int b) { return std::max(a, 32) == std::max(b, 32); }

bool is_literal(const ast::Operand& operand) {
  return operand.kind == OperandKind::Integer || operand.kind == OperandKind::Float32 ||
         operand.kind == OperandKind::Float64;
}

uint64_t truncate(uint64_t value, int bits) { return bits >= 64 ? value : value & ((uint64_t{1} << bits) - 1); }

}  // namespace

Decoder::Decoder(ProgramBuilder& builder, const ast::Instruction& source, Instr& out)
    : builder_(builder), source_(source), out_(out), modifiers_(source.opcode) {
  if (source.guard.empty()) return;
  const Binding* guard = builder_.find(source.guard);
  if (guard == nullptr || guard->kind != Binding::Kind::Predicate) unknown("guard is not a predicate register");
  out_.guard = guard->index;
  out_.guard_negated = source.guard_negated;
}

const ast::Operand& Decoder::operand(size_t i) const {
  if (i >= source_.operands.size()) unknown("operand missing");
  return source_.operands[i];
}

void Decoder::unknown(const std::string& reason) const { throw PtxError(source_.line, source_.text, reason); }

void Decoder::finish(size_t min_operands, size_t max_operands) {
  if (!modifiers_.empty()) unknown("modifier ." + std::string(modifiers_.left().front()) + " is not modelled here");
  if (operand_count() < min_operands || operand_count() > max_operands) unknown("wrong number of operands");
}

int Decoder::append(const Operand& operand) {
  operands_.push_back(operand);
  return static_cast<int>(operands_.size()) - 1;
}

int Decoder::none() { return append({}); }

Operand Decoder::constant(uint64_t value, int bits) {
  Operand operand;
  operand.kind = Operand::Kind::Constant;
  operand.bits = static_cast<uint8_t>(bits);
  operand.row = builder_.constant_row(truncate(value, bits), bits);
  return operand;
}

uint64_t Decoder::immediate_bits(const ast::Operand& operand, int bits) const {
  if (operand.kind == OperandKind::Integer) return operand.value;
  if (operand.kind == OperandKind::Float32) {
    if (bits == 32) return operand.value;
    if (bits != 64) unknown("float literal of another width");
    return std::bit_cast<uint64_t>(static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(operand.value))));
  }
  if (bits == 64) return operand.value;
  if (bits != 32) unknown("float literal of another width");
  return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(operand.value)));
}

// A register, special register or address of a variable.
Operand Decoder::name(const ast::Operand& operand, int bits) {
  if (operand.minus) unknown("negated name");
  const Binding* binding = builder_.find(operand.name);
  Operand result;
  result.kind = Operand::Kind::Register;
  result.bits = static_cast<uint8_t>(bits);
  if (binding == nullptr) {
    const std::optional<StartValue> special = special_register(operand.name);
    if (!special) unknown("unknown name " + operand.name);
    result.row = builder_.start_row(*special, bits, 0, 0);
    return result;
  }
  switch (binding->kind) {
    case Binding::Kind::Register:
      if (operand.offset != 0) unknown("register with an offset");
      result.bits = binding->bits;
      result.row = binding->index;
      return result;
    case Binding::Kind::Shared: {
      const int64_t value = binding->bits ? kDynamicShared : binding->index;
      result.row = builder_.start_row(StartValue::SharedAddress, bits, value, operand.offset);
      return result;
    }
    case Binding::Kind::Global:
      if (bits != 64) unknown("a global address needs 64 bits");
      result.row = builder_.start_row(StartValue::GlobalAddress, 64, binding->index, operand.offset);
      return result;
    case Binding::Kind::EntryParam:
    case Binding::Kind::Local:
    case Binding::Kind::LocalParam:
      return constant(static_cast<uint64_t>(binding->index + operand.offset), bits);
    default:
      unknown("not a value: " + operand.name);
  }
}

int Decoder::access(const ast::Operand& operand, int bits, Use use) {
  if (operand.kind == OperandKind::Sink) {
    if (use != Use::Write) unknown("_ is not a source");
    return none();
  }
  if (is_literal(operand)) {
    if (use == Use::Write || use == Use::ReadWrite) unknown("a literal is not a destination");
    return append(constant(immediate_bits(operand, bits), bits));
  }
  if (operand.kind != OperandKind::Name || operand.negated) unknown("operand of another form was expected");
  const Operand result = name(operand, bits);
  if (!same_rows(result.bits, bits)) unknown("register " + operand.name + " has another width");
  if (result.kind == Operand::Kind::Register) {
    if (use == Use::Read || use == Use::ReadWrite) reads_.push_back(result.row);
    if (use == Use::Write || use == Use::ReadWrite) writes_.push_back(result.row);
  } else if (use == Use::Write || use == Use::ReadWrite) {
    unknown("not a destination: " + operand.name);
  }
  return append(result);
}

int Decoder::read(const ast::Operand& operand, int bits) { return access(operand, bits, Use::Read); }
int Decoder::write(const ast::Operand& operand, int bits) { return access(operand, bits, Use::Write); }
int Decoder::read_write(const ast::Operand& operand, int bits) { return access(operand, bits, Use::ReadWrite); }

int Decoder::read_any(const ast::Operand& operand, int immediate_bits) {
  const Binding* binding = operand.kind == OperandKind::Name ? builder_.find(operand.name) : nullptr;
  const bool is_register = binding != nullptr && binding->kind == Binding::Kind::Register;
  return read(operand, is_register ? binding->bits : immediate_bits);
}

int Decoder::write_any(const ast::Operand& operand) {
  const Binding* binding = operand.kind == OperandKind::Name ? builder_.find(operand.name) : nullptr;
  return write(operand, binding != nullptr ? binding->bits : 32);
}

int Decoder::read_predicate(const ast::Operand& operand) {
  Operand result;
  result.kind = Operand::Kind::Predicate;
  result.bits = 1;
  result.negated = operand.negated;
  if (operand.kind == OperandKind::Integer) {
    result.negated = operand.value == 0;
    return append(result);
  }
  const Binding* binding = operand.kind == OperandKind::Name ? builder_.find(operand.name) : nullptr;
  if (binding == nullptr || binding->kind != Binding::Kind::Predicate) unknown("a predicate was expected");
  result.row = binding->index;
  predicate_reads_.push_back(result.row);
  return append(result);
}

int Decoder::write_predicate(const ast::Operand& operand) {
  if (operand.kind == OperandKind::Sink) return none();
  const Binding* binding = operand.kind == OperandKind::Name ? builder_.find(operand.name) : nullptr;
  if (binding == nullptr || binding->kind != Binding::Kind::Predicate || operand.negated) {
    unknown("a predicate was expected");
  }
  Operand result;
  result.kind = Operand::Kind::Predicate;
  result.bits = 1;
  result.row = binding->index;
  predicate_writes_.push_back(result.row);
  return append(result);
}

int Decoder::address(const ast::Operand& operand) {
  if (operand.kind != OperandKind::Address) unknown("an address was expected");
  if (operand.name.empty()) return append(constant(static_cast<uint64_t>(operand.offset), 64));
  const Binding* binding = builder_.find(operand.name);
  if (binding == nullptr) unknown("unknown name " + operand.name);
  if (binding->kind == Binding::Kind::Register) {
    if (binding->bits < 32) unknown("an address register needs 32 or 64 bits");
    Operand result;
    result.kind = Operand::Kind::Register;
    result.bits = binding->bits;
    result.row = binding->index;
    result.offset = operand.offset;
    reads_.push_back(result.row);
    return append(result);
  }
  ast::Operand symbol = operand;
  symbol.kind = OperandKind::Name;
  return append(name(symbol, binding->kind == Binding::Kind::Global ? 64 : 32));
}

int Decoder::vector(const ast::Operand& operand, int bits, int count, int* found, Use use) {
  const int first = static_cast<int>(operands_.size());
  if (operand.kind == OperandKind::Vector) {
    for (const ast::Operand& part : operand.parts) access(part, bits, use);
  } else {
    access(operand, bits, use);
  }
  const int number = static_cast<int>(operands_.size()) - first;
  if (count != 0 && number != count) unknown("a vector of " + std::to_string(count) + " operands was expected");
  if (found != nullptr) *found = number;
  return first;
}

int Decoder::read_vector(const ast::Operand& operand, int bits, int count, int* found) {
  return vector(operand, bits, count, found, Use::Read);
}
int Decoder::write_vector(const ast::Operand& operand, int bits, int count, int* found) {
  return vector(operand, bits, count, found, Use::Write);
}
int Decoder::read_write_vector(const ast::Operand& operand, int bits, int count, int* found) {
  return vector(operand, bits, count, found, Use::ReadWrite);
}

int Decoder::untracked_vector(const ast::Operand& operand, int bits, int count, int* found) {
  return vector(operand, bits, count, found, Use::Untracked);
}

int64_t Decoder::immediate(const ast::Operand& operand) const {
  if (operand.kind != OperandKind::Integer) unknown("an integer literal was expected");
  return static_cast<int64_t>(operand.value);
}

bool Decoder::is_immediate(const ast::Operand& operand) const { return is_literal(operand); }

uint32_t Decoder::label(const ast::Operand& operand) const {
  const Binding* binding = operand.kind == OperandKind::Name ? builder_.find(operand.name) : nullptr;
  if (binding == nullptr || binding->kind != Binding::Kind::Label) unknown("unknown label");
  return binding->index;
}

uint32_t Decoder::branch_list(const ast::Operand& operand) const {
  const Binding* binding = operand.kind == OperandKind::Name ? builder_.find(operand.name) : nullptr;
  if (binding == nullptr || binding->kind != Binding::Kind::BranchTargets) unknown("unknown list of branch targets");
  return binding->index;
}

bool Decoder::is_entry_param(const ast::Operand& operand) const {
  const Binding* binding = builder_.find(operand.name);
  return binding != nullptr && binding->kind == Binding::Kind::EntryParam;
}

bool Decoder::is_local_param(const ast::Operand& operand) const {
  const Binding* binding = builder_.find(operand.name);
  return binding != nullptr && binding->kind == Binding::Kind::LocalParam;
}

void Decoder::commit() {
  Kernel& kernel = builder_.kernel();
  out_.operand_count = static_cast<uint16_t>(operands_.size());
  out_.reads = static_cast<uint16_t>(reads_.size());
  out_.writes = static_cast<uint16_t>(writes_.size());
  out_.predicate_reads = static_cast<uint16_t>(predicate_reads_.size());
  out_.predicate_writes = static_cast<uint16_t>(predicate_writes_.size());
  if (!operands_.empty()) {
    auto block = std::make_unique<Operand[]>(operands_.size());
    std::copy(operands_.begin(), operands_.end(), block.get());
    out_.operands = block.get();
    kernel.operand_blocks.push_back(std::move(block));
  }
  const size_t touched = reads_.size() + writes_.size() + predicate_reads_.size() + predicate_writes_.size();
  if (touched == 0) return;
  auto block = std::make_unique<uint32_t[]>(touched);
  uint32_t* at = block.get();
  for (const auto* list : {&reads_, &writes_, &predicate_reads_, &predicate_writes_}) {
    at = std::copy(list->begin(), list->end(), at);
  }
  out_.touched = block.get();
  kernel.touched_blocks.push_back(std::move(block));
}

}  // namespace ptxrun
