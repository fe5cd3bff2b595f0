// Function bodies: statements, nested scopes, labels.
#include <cstdlib>
#include <unordered_map>
#include <utility>

#include "text/parser.h"

namespace ptxrun {
namespace {

using ast::Operand;
using ast::OperandKind;
using ast::StateSpace;

class BodyParser {
 public:
  BodyParser(TokenStream& tokens, ast::Function& function) : tokens_(tokens), function_(function) {}

  void run() {
    scopes_.push_back({-1, {}});
    tokens_.expect("{");
    parse_block(0);
    resolve_labels();
  }

 private:
  // Names that a { } block declares, with the names that are unique in the function.
  struct Scope {
    int parent;
    std::unordered_map<std::string, std::string> names;
  };

  std::string declare(int scope, const std::string& name) {
    std::string unique = scope == 0 ? name : name + "@" + std::to_string(scope);
    if (!scopes_[scope].names.emplace(name, unique).second) tokens_.fail("declared twice: " + name);
    return unique;
  }

  const std::string* find(int scope, const std::string& name) const {
    for (; scope >= 0; scope = scopes_[scope].parent) {
      const auto found = scopes_[scope].names.find(name);
      if (found != scopes_[scope].names.end()) return &found->second;
    }
    return nullptr;
  }

  void parse_block(int scope) {
    const Nesting level(tokens_);
    while (!tokens_.take("}")) {
      if (tokens_.at_end()) tokens_.fail("unterminated function body");
      parse_statement(scope);
    }
  }

  void parse_statement(int scope) {
    if (tokens_.take(";")) return;
    if (tokens_.take("{")) {
      scopes_.push_back({scope, {}});
      parse_block(static_cast<int>(scopes_.size()) - 1);
    } else if (tokens_.peek().kind == TokenKind::Directive) {
      parse_directive(scope);
    } else if (tokens_.peek().kind == TokenKind::Word && tokens_.is(":", 1)) {
      parse_label(scope);
    } else {
      parse_instruction(scope);
    }
  }

  void parse_directive(int scope) {
    const std::string_view name = tokens_.next().text;
    if (name == ".reg") {
      declare_variables(scope, StateSpace::Reg);
    } else if (name == ".param") {
      declare_variables(scope, StateSpace::Param);
    } else if (name == ".local") {
      declare_variables(scope, StateSpace::Local);
    } else if (name == ".shared") {
      declare_variables(scope, StateSpace::Shared);
    } else if (name == ".loc" || name == ".file") {
      tokens_.skip_line();
    } else if (name == ".pragma") {
      parse_pragma(tokens_.next().text);
      tokens_.expect(";");
    } else {
      tokens_.fail("unknown directive in a body: " + std::string(name));
    }
  }

  // `used_bytes_mask N` belongs to the load behind it; others are hints.
  void parse_pragma(std::string_view text) {
    constexpr std::string_view kUsedBytes = "used_bytes_mask ";
    if (!text.starts_with(kUsedBytes)) return;
    const std::string mask(text.substr(kUsedBytes.size()));
    used_bytes_ = static_cast<uint32_t>(std::strtoul(mask.c_str(), nullptr, 0));
  }

  void declare_variables(int scope, StateSpace space) {
    const size_t first = function_.variables.size();
    parse_variables(tokens_, space, false, function_.variables);
    for (size_t i = first; i < function_.variables.size(); ++i) {
      function_.variables[i].name = declare(scope, function_.variables[i].name);
    }
  }

  void parse_label(int scope) {
    const std::string name = tokens_.word();
    tokens_.expect(":");
    if (tokens_.take(".branchtargets")) {
      ast::BranchTargets targets{declare(scope, name), {}};
      do targets.labels.push_back(tokens_.word());
      while (tokens_.take(","));
      tokens_.expect(";");
      target_scopes_.push_back(scope);
      function_.branch_targets.push_back(std::move(targets));
    } else if (tokens_.is(".callprototype") || tokens_.is(".calltargets")) {
      while (!tokens_.take(";")) tokens_.next();
    } else {
      function_.labels.push_back({declare(scope, name), static_cast<uint32_t>(function_.body.size())});
    }
  }

  void parse_instruction(int scope) {
    const size_t start = tokens_.position();
    ast::Instruction instruction;
    instruction.line = tokens_.line();
    instruction.used_bytes = std::exchange(used_bytes_, ast::kAllBytes);
    if (tokens_.take("@")) {
      instruction.guard_negated = tokens_.take("!");
      instruction.guard = tokens_.word();
    }
    if (tokens_.peek().kind != TokenKind::Word) tokens_.fail("expected an instruction");
    instruction.opcode = tokens_.word();
    while (!tokens_.is(";")) {
      instruction.operands.push_back(parse_operand(tokens_));
      if (!tokens_.is(";")) tokens_.expect(",");
    }
    instruction.text = tokens_.text_since(start);
    tokens_.expect(";");
    if (const std::string* name = find(scope, instruction.guard)) instruction.guard = *name;
    function_.body.push_back(std::move(instruction));
    scopes_of_.push_back(scope);
  }

  void resolve(Operand& operand, int scope) {
    if (operand.kind == OperandKind::Name || operand.kind == OperandKind::Address) {
      if (const std::string* name = find(scope, operand.name)) operand.name = *name;
    }
    for (Operand& part : operand.parts) resolve(part, scope);
  }

  // At the end, since labels may be used before they stand.
  void resolve_labels() {
    for (size_t i = 0; i < function_.body.size(); ++i) {
      for (Operand& operand : function_.body[i].operands) resolve(operand, scopes_of_[i]);
    }
    for (size_t i = 0; i < function_.branch_targets.size(); ++i) {
      for (std::string& label : function_.branch_targets[i].labels) {
        if (const std::string* name = find(target_scopes_[i], label)) label = *name;
      }
    }
  }

  TokenStream& tokens_;
  ast::Function& function_;
  std::vector<Scope> scopes_;
  std::vector<int> scopes_of_;      // of each instruction
  std::vector<int> target_scopes_;  // of each .branchtargets
  uint32_t used_bytes_ = ast::kAllBytes;
};

}  // namespace

void parse_body(TokenStream& tokens, ast::Function& function) { BodyParser(tokens, function).run(); }

}  // namespace ptxrun
