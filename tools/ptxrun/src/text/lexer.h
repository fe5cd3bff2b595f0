// PTX text -> tokens.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ptxrun {

enum class TokenKind : uint8_t {
  Word,       // names, registers, opcodes with their modifiers
  Directive,  // .reg, .b32; with the dot
  Number,     // as written, without a sign
  String,     // without the quotes
  Punctuation,
  End,
};

struct Token {
  TokenKind kind;
  std::string_view text;  // into the source
  int line;
};

// The last token is End. Views point into `source`, which must outlive them.
std::vector<Token> tokenize(std::string_view source);

}  // namespace ptxrun
