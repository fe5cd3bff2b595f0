#include <algorithm>
#include <array>
#include <utility>

#include "decode/decoder.h"

namespace ptxrun {
namespace {

struct TypeName {
  std::string_view name;
  Type type;
  int bits;
};

constexpr TypeName kTypes[] = {
    {"pred", Type::Pred, 1},    {"b8", Type::B8, 8},          {"b16", Type::B16, 16},     {"b32", Type::B32, 32},
    {"b64", Type::B64, 64},     {"b128", Type::B128, 128},    {"u8", Type::U8, 8},        {"u16", Type::U16, 16},
    {"u32", Type::U32, 32},     {"u64", Type::U64, 64},       {"s8", Type::S8, 8},        {"s16", Type::S16, 16},
    {"s32", Type::S32, 32},     {"s64", Type::S64, 64},       {"f16", Type::F16, 16},     {"bf16", Type::BF16, 16},
    {"f16x2", Type::F16x2, 32}, {"bf16x2", Type::BF16x2, 32}, {"f32", Type::F32, 32},     {"f64", Type::F64, 64},
    {"f32x2", Type::F32x2, 64}, {"u16x2", Type::U16x2, 32},   {"s16x2", Type::S16x2, 32},
};

}  // namespace

int type_bits(Type type) {
  for (const TypeName& entry : kTypes) {
    if (entry.type == type) return entry.bits;
  }
  return 0;
}

bool type_is_float(Type type) {
  return type == Type::F16 || type == Type::BF16 || type == Type::F16x2 || type == Type::BF16x2 || type == Type::F32 ||
         type == Type::F64 || type == Type::F32x2;
}

bool type_is_signed(Type type) {
  return type == Type::S8 || type == Type::S16 || type == Type::S32 || type == Type::S64 || type == Type::S16x2;
}

Type parse_type(std::string_view word) {
  for (const TypeName& entry : kTypes) {
    if (entry.name == word) return entry.type;
  }
  return Type::Other;
}

Modifiers::Modifiers(std::string_view opcode) {
  size_t end = opcode.find('.');
  mnemonic_ = opcode.substr(0, end);
  while (end != std::string_view::npos) {
    const size_t start = end + 1;
    end = opcode.find('.', start);
    parts_.push_back(opcode.substr(start, end == std::string_view::npos ? end : end - start));
  }
}

bool Modifiers::take(std::string_view word) {
  const auto found = std::find(parts_.begin(), parts_.end(), word);
  if (found == parts_.end()) return false;
  parts_.erase(found);
  return true;
}

int Modifiers::take_one(std::initializer_list<std::string_view> words) {
  int index = 0;
  for (const std::string_view word : words) {
    if (take(word)) return index;
    ++index;
  }
  return -1;
}

std::string_view Modifiers::take_front() {
  if (parts_.empty()) return {};
  const std::string_view part = parts_.front();
  parts_.erase(parts_.begin());
  return part;
}

std::string_view Modifiers::take_back() {
  if (parts_.empty()) return {};
  const std::string_view part = parts_.back();
  parts_.pop_back();
  return part;
}

Type Modifiers::take_type() {
  for (auto part = parts_.begin(); part != parts_.end(); ++part) {
    const Type type = parse_type(*part);
    if (type == Type::Other) continue;
    parts_.erase(part);
    return type;
  }
  return Type::Other;
}

}  // namespace ptxrun
