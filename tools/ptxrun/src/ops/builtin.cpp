#include "ops/builtin.h"

#include <cstring>

#include "decode/builder.h"
#include "exec/machine.h"
#include "memory/memory.h"

namespace ptxrun {
namespace {

constexpr int kMaxArguments = 5;
constexpr size_t kMaxText = 4096;

struct BuiltinModifiers {
  uint32_t arguments[kMaxArguments];  // offsets in local memory
};

uint64_t argument(Warp& warp, int lane, uint32_t offset, int bytes) {
  const Place place = warp.local_place(offset, lane);
  uint64_t value = 0;
  std::memcpy(&value, place.region->data + place.offset, static_cast<size_t>(bytes));
  return value;
}

// Bytes behind a generic address, without checks: up to the end of the allocation.
std::string bytes_at(Warp& warp, int lane, uint64_t address, size_t count) {
  const Place place = warp.machine.memory.find(Space::Generic, address, &warp.cta, &warp, lane);
  if (place.region == nullptr) return {};
  count = std::min<size_t>(count, place.region->bytes - place.offset);
  return {reinterpret_cast<const char*>(place.region->data + place.offset), count};
}

std::string text_at(Warp& warp, int lane, uint64_t address) { return bytes_at(warp, lane, address, kMaxText).c_str(); }

// One conversion of a format: the values lie one after another, each at a multiple of its size.
class Formatter {
 public:
  Formatter(Warp& warp, int lane, std::string values) : warp_(warp), lane_(lane), values_(std::move(values)) {}

  std::string run(const std::string& format) {
    std::string text;
    for (size_t i = 0; i < format.size();) {
      if (format[i] != '%') {
        text += format[i++];
        continue;
      }
      size_t end = format.find_first_of("diouxXcsfFeEgGaAp%", i + 1);
      if (end == std::string::npos) break;
      text += convert(format.substr(i, end + 1 - i));
      i = end + 1;
    }
    return text;
  }

 private:
  template <class T>
  T take() {
    at_ = (at_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    T value{};
    if (at_ + sizeof(T) <= values_.size()) std::memcpy(&value, values_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  std::string convert(const std::string& spec) {
    const char kind = spec.back();
    const bool is_long = spec.find('l') != std::string::npos || spec.find('z') != std::string::npos;
    char text[128];
    if (kind == '%') return "%";
    if (kind == 's') return text_at(warp_, lane_, take<uint64_t>());
    if (std::strchr("fFeEgGaA", kind)) {
      std::snprintf(text, sizeof(text), spec.c_str(), take<double>());
    } else if (kind == 'p' || is_long) {
      std::snprintf(text, sizeof(text), spec.c_str(), take<uint64_t>());
    } else {
      std::snprintf(text, sizeof(text), spec.c_str(), take<uint32_t>());
    }
    return text;
  }

  Warp& warp_;
  int lane_;
  std::string values_;
  size_t at_ = 0;
};

Step run_vprintf(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<BuiltinModifiers>();
  for_lanes(active, [&](int lane) {
    const std::string format = text_at(warp, lane, argument(warp, lane, mods.arguments[0], 8));
    const uint64_t values = argument(warp, lane, mods.arguments[1], 8);
    warp.machine.output += Formatter(warp, lane, bytes_at(warp, lane, values, kMaxText)).run(format);
  });
  return Step::Next;
}

// __assertfail(message, file, line, function, character size)
Step run_assertfail(Warp& warp, const Instr& instr, LaneMask active) {
  const auto& mods = instr.mods<BuiltinModifiers>();
  const int lane = std::countr_zero(active);
  const auto text = [&](int i) { return text_at(warp, lane, argument(warp, lane, mods.arguments[i], 8)); };
  warp.report(code::kTrap,
              "assertion `" + text(0) + "` failed in " + text(3) + ", " + text(1) + ":" +
                  std::to_string(argument(warp, lane, mods.arguments[2], 4)),
              active);
  return Step::Halt;
}

}  // namespace

bool decode_builtin(Decoder& d, Instr& out, const std::string& name, const std::vector<ast::Operand>* arguments) {
  const bool print = name == "vprintf";
  if (!print && name != "__assertfail") return false;
  const size_t count = print ? 2 : kMaxArguments;
  if (arguments == nullptr || arguments->size() != count) d.unknown("arguments do not fit the function");
  BuiltinModifiers mods{};
  for (size_t i = 0; i < count; ++i) {
    const Binding* binding = d.builder().find((*arguments)[i].name);
    if (binding == nullptr || binding->kind != Binding::Kind::LocalParam)
      d.unknown("arguments must be .param variables");
    mods.arguments[i] = binding->index;
  }
  out.set_mods(mods);
  out.handler = print ? run_vprintf : run_assertfail;
  return true;
}

}  // namespace ptxrun
