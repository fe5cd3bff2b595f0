// Declarations: registers, parameters, variables with initialisers.
#include <algorithm>
#include <cstring>

#include "text/parser.h"

namespace ptxrun {
namespace {

using ast::StateSpace;
using ast::Variable;

// Beyond what a kernel can declare.
constexpr int64_t kMaxRegisters = 1 << 20;
constexpr int64_t kMaxAlign = 1 << 16;
constexpr uint64_t kMaxBytes = uint64_t{1} << 31;

struct Declaration {
  uint32_t align = 0;
  uint32_t vector = 1;
  std::string type;
};

// Everything before the name. `.ptr .global .align 16` of a pointer parameter says nothing about the parameter itself.
Declaration parse_declaration(TokenStream& tokens) {
  Declaration result;
  bool pointee = false;
  while (tokens.peek().kind == TokenKind::Directive) {
    const std::string word(tokens.next().text.substr(1));
    if (word == "align") {
      const int64_t align = parse_integer(tokens);
      if (align <= 0 || (align & (align - 1)) != 0 || align > kMaxAlign) tokens.fail("an alignment is a power of two");
      if (!pointee) result.align = static_cast<uint32_t>(align);
    } else if (word == "v2" || word == "v4") {
      result.vector = word == "v2" ? 2 : 4;
    } else if (word == "ptr") {
      pointee = true;
    } else if (word == "attribute") {
      tokens.fail("variable attributes are not modelled");
    } else if (!pointee) {
      if (ast::type_bytes(word) == 0) tokens.fail("unknown type ." + word);
      result.type = word;
    }
  }
  if (result.type.empty()) tokens.fail("declaration without a type");
  return result;
}

// [3][4]; [] gives 0 elements.
uint64_t parse_dimensions(TokenStream& tokens) {
  uint64_t elements = 1;
  while (tokens.take("[")) {
    if (tokens.take("]")) {
      elements = 0;
      continue;
    }
    const int64_t extent = parse_integer(tokens);
    if (extent < 0 || static_cast<uint64_t>(extent) > kMaxBytes) tokens.fail("an array of a size that cannot be");
    elements *= static_cast<uint64_t>(extent);
    if (elements > kMaxBytes) tokens.fail("an array of a size that cannot be");
    tokens.expect("]");
  }
  return elements;
}

void put_bytes(Variable& variable, uint64_t at, uint64_t value, uint64_t bytes) {
  if (variable.init.size() < at + bytes) variable.init.resize(at + bytes);
  std::memcpy(variable.init.data() + at, &value, bytes);
}

// Symbol, symbol+offset, generic(symbol), 0xFF(symbol): an address; the mask of the last form selects one byte of it.
void parse_symbol(TokenStream& tokens, Variable& variable, uint64_t at, uint64_t bytes) {
  const bool generic = tokens.take("generic");
  if (generic) tokens.expect("(");
  ast::Symbol symbol{at, tokens.word(), 0, static_cast<int>(bytes)};
  if (generic) tokens.expect(")");
  if (tokens.take("+")) symbol.offset = parse_integer(tokens);
  variable.symbols.push_back(symbol);
  put_bytes(variable, at, 0, bytes);
}

uint64_t parse_initialiser(TokenStream& tokens, Variable& variable, uint64_t at, uint64_t bytes) {
  const Nesting level(tokens);
  if (tokens.take("{")) {
    while (!tokens.take("}")) {
      at = parse_initialiser(tokens, variable, at, bytes);
      if (!tokens.is("}")) tokens.expect(",");
    }
    return at;
  }
  if (tokens.peek().kind == TokenKind::Word) {
    parse_symbol(tokens, variable, at, bytes);
    return at + bytes;
  }
  if (tokens.peek().kind == TokenKind::Number && tokens.is("(", 1))
    tokens.fail("byte masks of addresses are not modelled");
  const ast::Operand value = parse_number(tokens);
  put_bytes(variable, at, value.value, bytes);
  return at + bytes;
}

Variable make_variable(TokenStream& tokens, const Declaration& declaration, StateSpace space) {
  Variable variable;
  variable.line = tokens.line();
  variable.space = space;
  variable.name = tokens.word();
  variable.type = declaration.type;
  const uint64_t element = ast::type_bytes(declaration.type) * declaration.vector;
  variable.align = declaration.align ? declaration.align : static_cast<uint32_t>(element);
  variable.elements = parse_dimensions(tokens) * declaration.vector;
  variable.bytes = variable.elements * ast::type_bytes(declaration.type);
  return variable;
}

}  // namespace

uint64_t ast::type_bytes(const std::string& type) {
  if (type == "pred") return 1;
  if (type == "f16x2" || type == "bf16x2") return 4;
  const size_t digit = type.find_first_of("0123456789");
  if (digit == std::string::npos) return 0;
  const std::string letters = type.substr(0, digit);
  if (letters != "b" && letters != "u" && letters != "s" && letters != "f" && letters != "bf") return 0;
  const std::string bits = type.substr(digit);
  for (const int width : {8, 16, 32, 64, 128}) {
    if (bits == std::to_string(width)) return static_cast<uint64_t>(width) / 8;
  }
  return 0;
}

void parse_variables(TokenStream& tokens, StateSpace space, bool is_extern, std::vector<Variable>& out) {
  const Declaration declaration = parse_declaration(tokens);
  do {
    Variable variable = make_variable(tokens, declaration, space);
    variable.is_extern = is_extern;
    if (tokens.take("<")) {
      const int64_t count = parse_integer(tokens);
      if (count < 0 || count > kMaxRegisters) tokens.fail("a number of registers that cannot be");
      tokens.expect(">");
      const std::string stem = variable.name;
      for (int64_t i = 0; i < count; ++i) {
        variable.name = stem + std::to_string(i);
        out.push_back(variable);
      }
      continue;
    }
    if (tokens.take("=")) {
      const uint64_t end = parse_initialiser(tokens, variable, 0, ast::type_bytes(declaration.type));
      variable.bytes = std::max(variable.bytes, end);
      variable.init.resize(variable.bytes);
    }
    out.push_back(std::move(variable));
  } while (tokens.take(","));
  tokens.expect(";");
}

Variable parse_parameter(TokenStream& tokens) {
  if (!tokens.take(".param") && !tokens.take(".reg")) tokens.fail("expected a parameter");
  return make_variable(tokens, parse_declaration(tokens), StateSpace::Param);
}

}  // namespace ptxrun
