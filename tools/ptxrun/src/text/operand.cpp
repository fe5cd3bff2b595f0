// Operands: numbers, names, vectors, pairs, addresses.
#include <bit>
#include <cstdlib>

#include "text/parser.h"

namespace ptxrun {
namespace {

using ast::Operand;
using ast::OperandKind;

bool is_float_text(std::string_view text) {
  if (text.size() > 1 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X' || text[1] == 'b' || text[1] == 'B')) {
    return false;
  }
  return text.find('.') != std::string_view::npos || text.find_first_of("eE") != std::string_view::npos;
}

Operand number(std::string_view text, const TokenStream& tokens) {
  Operand operand;
  const std::string digits(text);
  char* end = nullptr;
  if (text.size() == 10 && text[0] == '0' && (text[1] == 'f' || text[1] == 'F')) {
    operand.kind = OperandKind::Float32;
    operand.value = std::strtoul(digits.c_str() + 2, &end, 16);
  } else if (text.size() == 18 && text[0] == '0' && (text[1] == 'd' || text[1] == 'D')) {
    operand.kind = OperandKind::Float64;
    operand.value = std::strtoull(digits.c_str() + 2, &end, 16);
  } else if (is_float_text(text)) {
    operand.kind = OperandKind::Float64;
    operand.value = std::bit_cast<uint64_t>(std::strtod(digits.c_str(), &end));
  } else {
    operand.kind = OperandKind::Integer;
    const bool binary = text.size() > 2 && text[0] == '0' && (text[1] == 'b' || text[1] == 'B');
    operand.value = std::strtoull(digits.c_str() + (binary ? 2 : 0), &end, binary ? 2 : 0);
    if (*end == 'U' || *end == 'u') ++end;
  }
  if (end == nullptr || *end != '\0') tokens.fail("malformed number " + digits);
  return operand;
}

void negate(Operand& operand) {
  if (operand.kind == OperandKind::Integer) {
    operand.value = 0 - operand.value;
  } else {
    operand.value ^= uint64_t{1} << (operand.kind == OperandKind::Float32 ? 31 : 63);
  }
}

Operand parse_list(TokenStream& tokens, OperandKind kind, std::string_view open, std::string_view close) {
  Operand list;
  list.kind = kind;
  tokens.expect(open);
  while (!tokens.take(close)) {
    list.parts.push_back(parse_operand(tokens));
    if (!tokens.is(close)) tokens.expect(",");
  }
  return list;
}

int64_t parse_displacement(TokenStream& tokens) {
  int64_t offset = 0;
  while (tokens.is("+") || tokens.is("-")) {
    const bool minus = tokens.next().text == "-";
    const int64_t value = parse_integer(tokens);
    offset += minus ? -value : value;
  }
  return offset;
}

Operand parse_address(TokenStream& tokens) {
  Operand address;
  tokens.expect("[");
  address.kind = OperandKind::Address;
  if (tokens.peek().kind == TokenKind::Word) {
    address.name = tokens.word();
  } else {
    address.offset = parse_integer(tokens);
  }
  address.offset += parse_displacement(tokens);
  while (tokens.take(",")) address.parts.push_back(parse_operand(tokens));
  tokens.expect("]");
  return address;
}

Operand parse_name(TokenStream& tokens) {
  Operand operand;
  operand.name = tokens.word();
  if (operand.name == "_") {
    operand.kind = OperandKind::Sink;
    return operand;
  }
  operand.offset = parse_displacement(tokens);
  return operand;
}

}  // namespace

ast::Operand parse_number(TokenStream& tokens) {
  const bool minus = tokens.take("-");
  if (!minus) tokens.take("+");
  if (tokens.peek().kind != TokenKind::Number) tokens.fail("expected a number");
  const std::string_view text = tokens.peek().text;
  Operand operand = number(text, tokens);
  tokens.next();
  if (minus) negate(operand);
  return operand;
}

int64_t parse_integer(TokenStream& tokens) {
  const Operand operand = parse_number(tokens);
  if (operand.kind != OperandKind::Integer) tokens.fail("expected an integer");
  return static_cast<int64_t>(operand.value);
}

ast::Operand parse_operand(TokenStream& tokens) {
  const Nesting level(tokens);
  if (tokens.is("{")) return parse_list(tokens, OperandKind::Vector, "{", "}");
  if (tokens.is("(")) return parse_list(tokens, OperandKind::Group, "(", ")");
  if (tokens.is("[")) return parse_address(tokens);
  if (tokens.take("!")) {
    Operand operand = parse_name(tokens);
    operand.negated = true;
    return operand;
  }
  if (tokens.peek().kind == TokenKind::Number || (tokens.is("-") && tokens.peek(1).kind == TokenKind::Number)) {
    return parse_number(tokens);
  }
  if (tokens.take("-")) {
    Operand operand = parse_name(tokens);
    operand.minus = true;
    return operand;
  }
  if (tokens.peek().kind != TokenKind::Word) tokens.fail("expected an operand");
  Operand first = parse_name(tokens);
  if (!tokens.take("|")) return first;
  Operand pair;
  pair.kind = OperandKind::Pair;
  pair.parts.push_back(std::move(first));
  pair.parts.push_back(parse_operand(tokens));
  return pair;
}

}  // namespace ptxrun
