// From a conflict in a shadow cell to a finding that names the cause.
#include <algorithm>

#include "check/checks.h"
#include "check/finding.h"

namespace ptxrun::check {

namespace {

const char* kind_name(PipeKind kind) {
  switch (kind) {
    case PipeKind::Mbarrier:
      return "asynchronous operation that completes on an mbarrier";
    case PipeKind::CpAsync:
      return "cp.async";
    case PipeKind::BulkRead:
    case PipeKind::BulkWrite:
      return "bulk copy of a bulk group";
    case PipeKind::Wgmma:
      return "wgmma";
    case PipeKind::Tcgen05:
      return "tcgen05.mma or cp";
    case PipeKind::TmemLoad:
      return "tcgen05.ld";
    default:
      return "tcgen05.st";
  }
}

const char* announcement(PipeKind kind) {
  switch (kind) {
    case PipeKind::Mbarrier:
      return "its mbarrier phase";
    case PipeKind::CpAsync:
      return "cp.async.wait_group or the mbarrier of cp.async.mbarrier.arrive";
    case PipeKind::BulkRead:
      return "cp.async.bulk.wait_group.read";
    case PipeKind::BulkWrite:
      return "cp.async.bulk.wait_group";
    case PipeKind::Wgmma:
      return "wgmma.wait_group";
    case PipeKind::Tcgen05:
      return "the mbarrier of a tcgen05.commit";
    case PipeKind::TmemLoad:
      return "tcgen05.wait::ld";
    default:
      return "tcgen05.wait::st";
  }
}

std::string hex(uint64_t value) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), digits[value % 16]);
    value /= 16;
  } while (value);
  return "0x" + text;
}

std::string place_in_tmem(uint64_t offset) {
  const uint64_t cell = offset / 4;
  return "tensor memory lane " + std::to_string(cell / kTmemColumns) + ", column " +
         std::to_string(cell % kTmemColumns) + ": ";
}

const char* layout_name(Layout layout) {
  switch (layout) {
    case Layout::Linear:
      return "without a swizzle";
    case Layout::Swizzle32:
      return "with the 32-byte swizzle";
    case Layout::Swizzle64:
      return "with the 64-byte swizzle";
    case Layout::Swizzle128:
      return "with the 128-byte swizzle";
    case Layout::Accumulator:
      return "as an accumulator";
    case Layout::ScaleFactors:
      return "as scale factors";
    default:
      return "in an unknown layout";
  }
}

const char* action(bool writes) { return writes ? "write" : "read"; }

}  // namespace

std::string describe(const Party& party) {
  if (party.is_warp) return "warp " + std::to_string(party.warp);
  std::string text = kind_name(party.kind);
  if (party.kind == PipeKind::Mbarrier) return text + " at shared+" + hex(party.detail);
  return text + " of warp " + std::to_string(party.warp);
}

Party Checks::party_of(AgentId agent) const {
  const auto cta = ctas_.find(cta_serial_of(agent));
  if (cta == ctas_.end() || agent_index_of(agent) >= cta->second.parties.size()) return {.is_warp = true};
  return cta->second.parties[agent_index_of(agent)];
}

Site Checks::site_of(const Entry& entry) const {
  Site site;
  site.instr = entry.instr;
  site.warp = entry.warp;
  const auto cta = ctas_.find(cta_serial_of(entry.epoch.agent));
  if (cta == ctas_.end()) return site;
  site.kernel = cta->second.grid->config.kernel;
  site.launch = cta->second.grid->index;
  site.cta = cta->second.linear;
  return site;
}

const char* Checks::classify(const Touch& touch, const Conflict& conflict) const {
  if (conflict.kind == Conflict::Kind::Uninitialised) return code::kUninitialisedRead;
  if (conflict.kind == Conflict::Kind::Object) return code::kInvalidMbarrier;
  if (conflict.kind == Conflict::Kind::Layout) return code::kBadDescriptor;
  if (conflict.kind == Conflict::Kind::ReadOnly) return code::kReadOnlyPath;
  if (conflict.relation == Relation::Unfenced) {
    return touch.path == Path::Tensor ? code::kMissingTcgen05Fence : code::kMissingProxyFence;
  }
  const bool other_async = !party_of(conflict.other.epoch.agent).is_warp;
  if (other_async && conflict.writes) return code::kOverwriteInFlight;
  if (other_async) return code::kMissingWait;
  const bool async_write = conflict.writes && !(touch.epoch == touch.issuer);
  return async_write && !conflict.other_writes ? code::kOverwriteInFlight : code::kRace;
}

std::string Checks::explain(const Conflict& conflict, const char* code) const {
  if (conflict.kind == Conflict::Kind::Uninitialised) return "nothing was written to these bytes before";
  if (conflict.kind == Conflict::Kind::Object) return "these bytes hold an mbarrier";
  if (conflict.kind == Conflict::Kind::ReadOnly) return "the same launch has written these bytes: .nc may miss that";
  if (conflict.kind == Conflict::Kind::Layout) {
    return std::string("bytes that were written ") + layout_name(conflict.other.layout) + " are read " +
           layout_name(conflict.layout);
  }
  const Party party = party_of(conflict.other.epoch.agent);
  std::string text = std::string(action(conflict.writes)) + " against a " + action(conflict.other_writes) + " by " +
                     describe(party) + ": ";
  if (code == code::kMissingTcgen05Fence) {
    return text + "ordered, but without tcgen05.fence::before_thread_sync and ::after_thread_sync around the handover";
  }
  if (code == code::kMissingProxyFence) {
    return text + "ordered, but no proxy fence (fence.proxy.async, or .tensormap) lies between them";
  }
  if (party.is_warp) return text + "no synchronisation orders them";
  return text + "its completion, announced by " + announcement(party.kind) + ", was not observed before";
}

void Checks::report(const Touch& touch, const Site& site, const Region* region) {
  std::vector<RangeConflict> conflicts;
  std::swap(conflicts, conflicts_);
  for (const auto& [offset, conflict] : conflicts) {
    const char* code = classify(touch, conflict);
    const bool has_other = conflict.kind != Conflict::Kind::Uninitialised;
    if (count_again(machine_.findings, code, site.instr, has_other ? conflict.other.instr : nullptr)) continue;
    const std::string message = (region ? "" : place_in_tmem(offset)) + explain(conflict, code);
    const Site other = has_other ? site_of(conflict.other) : Site();
    machine_.report(code, message, site, region, offset, has_other ? &other : nullptr);
  }
}

}  // namespace ptxrun::check
