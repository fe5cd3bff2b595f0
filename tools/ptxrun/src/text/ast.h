// What the parser hands to the decoder: PTX as written, names unresolved.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace ptxrun {

// A spelling or construct that is wrong or not modelled: line of the PTX text and what it says there.
class PtxError : public std::runtime_error {
 public:
  PtxError(int line, const std::string& text, const std::string& reason)
      : std::runtime_error("PTX line " + std::to_string(line) + ": " + reason + ": " + text), line(line) {}
  int line;
};

namespace ast {

enum class OperandKind : uint8_t {
  Name,     // register, special register, variable, label or function, after scope resolution
  Integer,  // value
  Float32,  // value holds the bits
  Float64,
  Vector,   // {a, b, ...}: parts
  Pair,     // p|q: parts
  Address,  // [base + offset], parts: further operands inside the brackets ({x, y} of a tensor address, im2col, ...)
  Sink,     // _
  Group,    // (a, b) of a call: parts
};

struct Operand {
  OperandKind kind = OperandKind::Name;
  bool negated = false;  // !p
  bool minus = false;    // -name
  std::string name;      // Name, or the base of an Address; empty: absolute address
  uint64_t value = 0;    // Integer, floats: bits
  int64_t offset = 0;    // Address, or Name+imm as a value
  std::vector<Operand> parts;
};

constexpr uint32_t kAllBytes = ~uint32_t{0};

struct Instruction {
  int line = 0;
  uint32_t used_bytes = kAllBytes;  // of a load: those whose value matters, by .pragma "used_bytes_mask"
  std::string text;                 // as written, without comments
  std::string guard;                // register name or empty
  bool guard_negated = false;
  std::string opcode;  // with all modifiers: ld.global.v4.u32
  std::vector<Operand> operands;
};

enum class StateSpace : uint8_t { Reg, Param, Shared, Global, Const, Local };

struct Symbol {  // an address inside an initialiser
  uint64_t at;   // byte offset in the variable
  std::string name;
  int64_t offset;
  int bytes;
};

struct Variable {
  int line = 0;
  StateSpace space = StateSpace::Reg;
  std::string name;
  std::string type;  // without the dot: b32, f32, pred, b128
  uint32_t align = 1;
  uint64_t elements = 1;  // product of the dimensions and of the vector width
  uint64_t bytes = 0;
  bool is_extern = false;  // .extern .shared x[]: the dynamic part
  std::vector<uint8_t> init;
  std::vector<Symbol> symbols;
};

// A label stands before the instruction with that index.
struct Label {
  std::string name;
  uint32_t target;
};

struct BranchTargets {
  std::string name;
  std::vector<std::string> labels;
};

struct Function {
  int line = 0;
  bool is_entry = false;
  bool has_body = false;
  std::string name;
  std::vector<Variable> returns, params;
  uint32_t maxntid[3] = {0, 0, 0};
  uint32_t reqntid[3] = {0, 0, 0};
  uint32_t min_ctas = 0;
  uint32_t cluster[3] = {0, 0, 0};  // .reqnctapercluster / .explicitcluster
  uint32_t max_registers = 0;
  std::vector<Variable> variables;  // registers, .param, .local and .shared of the body; names made unique by scope
  std::vector<Instruction> body;
  std::vector<Label> labels;
  std::vector<BranchTargets> branch_targets;
};

struct Module {
  std::string version, target;
  std::vector<Variable> variables;
  std::vector<Function> functions;
};

// Of a type name without its dot; 0: unknown.
uint64_t type_bytes(const std::string& type);

}  // namespace ast

ast::Module parse_ptx(const std::string& text);

}  // namespace ptxrun
