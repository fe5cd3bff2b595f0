#include "memory/warp_access.h"

#include <algorithm>
#include <bit>

#include "exec/machine.h"

namespace ptxrun {
namespace {

// A run of lanes whose accesses lie next to each other.
struct Range {
  Region* region = nullptr;
  uint64_t offset = 0, bytes = 0;
  LaneMask lanes = 0;
};

class Toucher {
 public:
  Toucher(Warp& warp, const Access& access, uint32_t bytes, uint32_t used, LaneBytes& out)
      : warp_(warp), access_(access), bytes_(bytes), used_(used), out_(out) {}

  void add(int lane, Place place) {
    // A lane that is out of bounds has a range of its own: it alone is to be reported.
    const bool bad = place.offset + bytes_ > place.region->bytes;
    const bool same_region = place.region == range_.region && range_.lanes != 0 && !bad;
    const bool adjacent = used_ == 0 && same_region && place.offset == range_.offset + range_.bytes;
    // Lanes that read one address are one access; writes of one address by two lanes are not told apart from it.
    const bool same = same_region && place.offset == last_offset_;
    if (!adjacent && !same) {
      flush();
      range_ = {place.region, place.offset, 0, 0};
    }
    if (!same) range_.bytes += bytes_;
    range_.lanes |= LaneMask{1} << lane;
    last_offset_ = place.offset;
    offsets_[lane] = place.offset;
    if (bad) flush();
  }

  void flush() {
    if (range_.lanes == 0) return;
    warp_.site(range_.lanes);
    uint8_t* data = touch();
    for (LaneMask rest = range_.lanes; rest; rest &= rest - 1) {
      const int lane = std::countr_zero(rest);
      out_.at[lane] = data != nullptr ? data + (offsets_[lane] - range_.offset) : nullptr;
    }
    range_ = {};
  }

 private:
  uint8_t* touch() {
    Memory& memory = warp_.machine.memory;
    if (used_ == 0 || range_.offset + bytes_ > range_.region->bytes) {
      return memory.touch(access_, *range_.region, range_.offset, range_.bytes);
    }
    uint8_t* data = nullptr;
    for (uint32_t at = 0; used_ >> at != 0;) {
      at += static_cast<uint32_t>(std::countr_zero(used_ >> at));
      const auto count = static_cast<uint32_t>(std::countr_one(used_ >> at));
      uint8_t* const part = memory.touch(access_, *range_.region, range_.offset + at, count);
      if (part == nullptr) return nullptr;
      data = part - at;
      at += count;
    }
    return data;
  }

  Warp& warp_;
  const Access& access_;
  const uint32_t bytes_;
  const uint64_t used_;
  LaneBytes& out_;
  Range range_;
  uint64_t last_offset_ = 0;
  uint64_t offsets_[kWarpLanes];
};

}  // namespace

void lane_addresses(Warp& warp, const Operand& address, uint64_t (&out)[kWarpLanes]) {
  if (address.bits == 64) {
    const uint64_t* base = warp.in<uint64_t>(address);
    for (int lane = 0; lane < kWarpLanes; ++lane) out[lane] = base[lane] + static_cast<uint64_t>(address.offset);
  } else {
    const uint32_t* base = warp.in<uint32_t>(address);
    const auto offset = static_cast<uint32_t>(address.offset);
    for (int lane = 0; lane < kWarpLanes; ++lane) out[lane] = base[lane] + offset;
  }
}

uint64_t lane_address(Warp& warp, const Operand& address, int lane) {
  if (address.bits == 64) return warp.in<uint64_t>(address)[lane] + static_cast<uint64_t>(address.offset);
  return warp.in<uint32_t>(address)[lane] + static_cast<uint32_t>(address.offset);
}

void touch_lanes(Warp& warp, LaneMask active, const Operand& address, Space space, uint32_t bytes, Access::Kind kind,
                 Order order, Scope scope, LaneBytes& out, uint32_t used, bool read_only) {
  uint64_t addresses[kWarpLanes];
  lane_addresses(warp, address, addresses);
  Access access;
  access.kind = kind;
  access.order = order;
  access.scope = scope;
  access.read_only = read_only;
  access.agent = &warp.agent;
  access.site = &warp.site(active);
  Toucher toucher(warp, access, bytes, used, out);
  LaneMask misaligned = 0;
  for (LaneMask rest = active; rest; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const uint64_t at = addresses[lane];
    out.at[lane] = nullptr;
    if (at & (bytes - 1)) {
      misaligned |= LaneMask{1} << lane;
      continue;
    }
    const Place place = warp.machine.memory.find(space, at, &warp.cta, &warp, lane);
    if (place.region == nullptr) {
      toucher.flush();
      warp.site(LaneMask{1} << lane);
      warp.machine.memory.report_bad(access, nullptr, at, bytes);
      continue;
    }
    toucher.add(lane, place);
  }
  toucher.flush();
  if (misaligned) {
    warp.report(code::kMisaligned, "an address is not a multiple of " + std::to_string(bytes), misaligned);
  }
  warp.site(active);
}

}  // namespace ptxrun
