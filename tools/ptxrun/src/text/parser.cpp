#include "text/parser.h"

#include <algorithm>

namespace ptxrun {

bool TokenStream::take(std::string_view text) {
  if (!is(text)) return false;
  next();
  return true;
}

void TokenStream::expect(std::string_view text) {
  if (!take(text)) fail("expected '" + std::string(text) + "'");
}

std::string TokenStream::word() {
  if (peek().kind != TokenKind::Word) fail("expected a name");
  return std::string(next().text);
}

void TokenStream::skip_line() {
  const int line = tokens_[at_ - 1].line;
  while (!at_end() && peek().line == line) next();
}

void TokenStream::skip_braces() {
  expect("{");
  for (int depth = 1; depth > 0;) {
    if (at_end()) fail("unterminated '{'");
    if (is("{")) ++depth;
    if (is("}")) --depth;
    next();
  }
}

std::string TokenStream::text_since(size_t start) const {
  std::string text;
  for (size_t i = start; i < at_; ++i) {
    const std::string_view word = tokens_[i].text;
    if (i > start) {
      const std::string_view before = tokens_[i - 1].text;
      if (before.data() + before.size() != word.data()) text += ' ';
    }
    text += word;
  }
  return text;
}

void TokenStream::fail(const std::string& reason) const {
  throw PtxError(line(), at_end() ? "end of text" : std::string(peek().text), reason);
}

namespace {

using ast::StateSpace;

void parse_triple(TokenStream& tokens, uint32_t (&out)[3]) {
  std::fill(out, out + 3, 1u);
  for (int i = 0; i < 3; ++i) {
    out[i] = static_cast<uint32_t>(parse_integer(tokens));
    if (!tokens.take(",")) return;
  }
}

void parse_attributes(TokenStream& tokens, ast::Function& function) {
  while (tokens.peek().kind == TokenKind::Directive) {
    const std::string_view name = tokens.next().text;
    if (name == ".maxntid") {
      parse_triple(tokens, function.maxntid);
    } else if (name == ".reqntid") {
      parse_triple(tokens, function.reqntid);
    } else if (name == ".reqnctapercluster") {
      parse_triple(tokens, function.cluster);
    } else if (name == ".minnctapersm") {
      function.min_ctas = static_cast<uint32_t>(parse_integer(tokens));
    } else if (name == ".maxnreg") {
      function.max_registers = static_cast<uint32_t>(parse_integer(tokens));
    } else if (name == ".maxclusterrank" || name == ".maxnctapersm") {
      parse_integer(tokens);
    } else if (name == ".pragma") {
      tokens.next();
      tokens.expect(";");
    } else if (name != ".explicitcluster" && name != ".blocksareclusters" && name != ".noreturn") {
      tokens.fail("unknown attribute of a function: " + std::string(name));
    }
  }
}

std::vector<ast::Variable> parse_parameters(TokenStream& tokens) {
  std::vector<ast::Variable> params;
  if (!tokens.take("(")) return params;
  while (!tokens.take(")")) {
    params.push_back(parse_parameter(tokens));
    tokens.take(",");
  }
  return params;
}

ast::Function parse_function(TokenStream& tokens, bool is_entry) {
  ast::Function function;
  function.line = tokens.line();
  function.is_entry = is_entry;
  if (!is_entry) {
    if (tokens.is(".attribute")) tokens.fail("function attributes are not modelled");
    function.returns = parse_parameters(tokens);
  }
  function.name = tokens.word();
  function.params = parse_parameters(tokens);
  parse_attributes(tokens, function);
  if (tokens.take(";")) return function;
  function.has_body = true;
  parse_body(tokens, function);
  return function;
}

void skip_target(TokenStream& tokens, ast::Module& module) {
  module.target = tokens.word();
  while (tokens.take(",")) tokens.word();
}

// One top-level directive; false at the end of the text.
bool parse_directive(TokenStream& tokens, ast::Module& module) {
  bool is_extern = false;
  while (tokens.is(".visible") || tokens.is(".extern") || tokens.is(".weak") || tokens.is(".common")) {
    is_extern |= tokens.next().text == ".extern";
  }
  if (tokens.at_end()) return false;
  if (tokens.peek().kind != TokenKind::Directive) tokens.fail("expected a directive");
  const std::string_view name = tokens.next().text;
  if (name == ".version") {
    module.version = std::string(tokens.next().text);
  } else if (name == ".target") {
    skip_target(tokens, module);
  } else if (name == ".address_size") {
    if (parse_integer(tokens) != 64) tokens.fail("only 64-bit addresses are modelled");
  } else if (name == ".entry" || name == ".func") {
    module.functions.push_back(parse_function(tokens, name == ".entry"));
  } else if (name == ".global") {
    parse_variables(tokens, StateSpace::Global, is_extern, module.variables);
  } else if (name == ".const") {
    parse_variables(tokens, StateSpace::Const, is_extern, module.variables);
  } else if (name == ".shared") {
    parse_variables(tokens, StateSpace::Shared, is_extern, module.variables);
  } else if (name == ".file" || name == ".loc") {
    tokens.skip_line();
  } else if (name == ".section") {
    tokens.next();
    tokens.skip_braces();
  } else if (name == ".pragma") {
    tokens.next();
    tokens.expect(";");
  } else {
    tokens.fail("unknown directive " + std::string(name));
  }
  return true;
}

}  // namespace

ast::Module parse_ptx(const std::string& text) {
  TokenStream tokens(text);
  ast::Module module;
  while (!tokens.at_end()) {
    if (!parse_directive(tokens, module)) break;
  }
  if (module.target.empty()) tokens.fail("no .target: not a PTX module");
  return module;
}

}  // namespace ptxrun
