#include "decode/target.h"

#include <charconv>

namespace ptxrun {
namespace {

struct Target {
  int number = 0;         // 90 of sm_90a
  bool specific = false;  // with a suffix: features of one architecture (a) or of a family (f)
};

Target parse_target(std::string_view text) {
  Target target;
  if (!text.starts_with("sm_")) return target;
  const char* const end = text.data() + text.size();
  const auto digits = std::from_chars(text.data() + 3, end, target.number);
  target.specific = digits.ptr != end;
  return target;
}

bool is_hopper(const Target& target) { return target.number == 90 && target.specific; }
bool has_tensor_memory(const Target& target) { return target.number >= 100 && target.number < 120 && target.specific; }
bool is_specific(const Target& target) { return target.number >= 90 && target.specific; }
template <int kNumber>
bool from(const Target& target) {
  return target.number >= kNumber;
}

struct Rule {
  std::string_view prefix;
  bool (*has)(const Target&);
  const char* needs;
};

// The first whose prefix fits holds.
constexpr Rule kRules[] = {
    {"wgmma", is_hopper, "sm_90a"},
    {"tcgen05", has_tensor_memory, "sm_100a, sm_103a or their family"},
    {"setmaxnreg", is_specific, "sm_90a or a later target with a suffix"},
    {"tensormap.replace", is_specific, "sm_90a or a later target with a suffix"},
    {"clusterlaunchcontrol", from<100>, "sm_100 or later"},
    {"barrier.cluster", from<90>, "sm_90 or later"},
    {"cp.async.bulk", from<90>, "sm_90 or later"},
    {"cp.reduce.async.bulk", from<90>, "sm_90 or later"},
    {"elect", from<90>, "sm_90 or later"},
    {"getctarank", from<90>, "sm_90 or later"},
    {"griddepcontrol", from<90>, "sm_90 or later"},
    {"mapa", from<90>, "sm_90 or later"},
    {"mbarrier.try_wait", from<90>, "sm_90 or later"},
    {"red.async", from<90>, "sm_90 or later"},
    {"st.async", from<90>, "sm_90 or later"},
    {"stmatrix", from<90>, "sm_90 or later"},
    {"cp.async", from<80>, "sm_80 or later"},
    {"mbarrier", from<80>, "sm_80 or later"},
    {"redux", from<80>, "sm_80 or later"},
    {"ldmatrix", from<75>, "sm_75 or later"},
};

bool is_prefix(std::string_view prefix, std::string_view opcode) {
  return opcode.starts_with(prefix) && (opcode.size() == prefix.size() || opcode[prefix.size()] == '.');
}

}  // namespace

std::string refused_by_target(std::string_view text, std::string_view opcode) {
  const Target target = parse_target(text);
  if (target.number == 0) return {};
  for (const Rule& rule : kRules) {
    if (!is_prefix(rule.prefix, opcode)) continue;
    if (rule.has(target)) return {};
    return std::string(rule.prefix) + " needs " + rule.needs + ", and the module's .target is " + std::string(text);
  }
  return {};
}

}  // namespace ptxrun
