#include "text/lexer.h"

#include <cctype>
#include <string>

#include "text/ast.h"

namespace ptxrun {
namespace {

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%'; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    std::vector<Token> tokens;
    tokens.reserve(source_.size() / 6);
    while (skip_blank()) tokens.push_back(next());
    tokens.push_back({TokenKind::End, source_.substr(source_.size()), line_});
    return tokens;
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  // False at the end of the text.
  bool skip_blank() {
    while (at_ < source_.size()) {
      const char c = source_[at_];
      if (c == '\n') {
        ++line_;
        ++at_;
      } else if (std::isspace(static_cast<unsigned char>(c)) || c == '\0') {
        ++at_;
      } else if (c == '/' && peek(1) == '/') {
        while (at_ < source_.size() && source_[at_] != '\n') ++at_;
      } else if (c == '/' && peek(1) == '*') {
        skip_block_comment();
      } else {
        return true;
      }
    }
    return false;
  }

  void skip_block_comment() {
    const size_t end = source_.find("*/", at_ + 2);
    if (end == std::string_view::npos) throw PtxError(line_, "/*", "unterminated comment");
    for (; at_ < end + 2; ++at_) line_ += source_[at_] == '\n';
  }

  Token next() {
    const size_t start = at_;
    const char c = peek();
    if (is_name_start(c)) {
      read_name();
      return token(TokenKind::Word, start);
    }
    if (c == '.' && is_name_start(peek(1))) {
      ++at_;
      while (is_name(peek())) ++at_;
      return token(TokenKind::Directive, start);
    }
    if (std::isdigit(static_cast<unsigned char>(c)) ||
        (c == '.' && std::isdigit(static_cast<unsigned char>(peek(1))))) {
      read_number();
      return token(TokenKind::Number, start);
    }
    if (c == '"') {
      const size_t end = source_.find('"', at_ + 1);
      if (end == std::string_view::npos) throw PtxError(line_, "\"", "unterminated string");
      at_ = end + 1;
      return {TokenKind::String, source_.substr(start + 1, end - start - 1), line_};
    }
    ++at_;
    return token(TokenKind::Punctuation, start);
  }

  // Dots and double colons join the parts of an opcode (ld.shared::cta.u32) and of a special register (%tid.x).
  void read_name() {
    while (true) {
      while (is_name(peek())) ++at_;
      if (peek() == '.' && is_name(peek(1))) {
        ++at_;
      } else if (peek() == ':' && peek(1) == ':' && is_name(peek(2))) {
        at_ += 2;
      } else {
        return;
      }
    }
  }

  void read_number() {
    const bool prefixed = peek() == '0' && std::isalpha(static_cast<unsigned char>(peek(1)));  // 0x, 0b, 0f, 0d
    while (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '.') {
      const bool exponent = !prefixed && (peek() == 'e' || peek() == 'E') && (peek(1) == '-' || peek(1) == '+');
      at_ += exponent ? 2 : 1;
    }
  }

  Token token(TokenKind kind, size_t start) const { return {kind, source_.substr(start, at_ - start), line_}; }

  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace ptxrun
