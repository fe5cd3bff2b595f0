// Recursive descent over the tokens; split into module, variables, bodies and operands.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/ast.h"
#include "text/lexer.h"

namespace ptxrun {

class TokenStream {
 public:
  explicit TokenStream(std::string_view source) : source_(source), tokens_(tokenize(source)) {}
  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool at_end() const { return peek().kind == TokenKind::End; }
  bool is(std::string_view text, size_t ahead = 0) const {
    return peek(ahead).text == text && peek(ahead).kind != TokenKind::String;
  }
  bool take(std::string_view text);
  void expect(std::string_view text);
  std::string word();
  int line() const { return peek().line; }
  void skip_line();    // the rest of the line of the token before
  void skip_braces();  // { ... }
  // Source text from the given token to the one before the current, blanks and comments folded.
  std::string text_since(size_t start) const;
  size_t position() const { return at_; }
  [[noreturn]] void fail(const std::string& reason) const;

 private:
  friend class Nesting;
  std::string_view source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

// A level of braces, brackets or operands, which recursion follows: fails where no PTX goes.
class Nesting {
 public:
  explicit Nesting(TokenStream& tokens) : tokens_(tokens) {
    constexpr int kDeepest = 256;
    if (++tokens_.depth_ > kDeepest) tokens_.fail("nested too deeply");
  }
  ~Nesting() { --tokens_.depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  TokenStream& tokens_;
};

// A number token with an optional sign; floats give their bits.
ast::Operand parse_number(TokenStream& tokens);
int64_t parse_integer(TokenStream& tokens);
ast::Operand parse_operand(TokenStream& tokens);

// Types up to the ';' or ',' of the declaration, the part after the state space: `.align 4 .v2 .b32 name[3] = {...}`.
// A name with a range (`%r<8>`) gives that many variables.
void parse_variables(TokenStream& tokens, ast::StateSpace space, bool is_extern, std::vector<ast::Variable>& out);
ast::Variable parse_parameter(TokenStream& tokens);

void parse_body(TokenStream& tokens, ast::Function& function);

}  // namespace ptxrun
