#include "memory/memory.h"

#include <algorithm>

#include "exec/machine.h"

namespace ptxrun {
namespace {

constexpr uint64_t kBufferAlign = 512;
constexpr uint64_t kGuardBytes = 4096;  // between buffers: an overrun meets no neighbour
constexpr uint8_t kGlobalPoison = 0xCB;
constexpr uint32_t kSharedOffsetMask = (1u << kSharedRankShift) - 1;
constexpr uint64_t kCountCell = 16;

uint64_t align_up(uint64_t value, uint64_t align) { return (value + align - 1) / align * align; }

bool starts_before(uint64_t address, const std::unique_ptr<Region>& region) { return address < region->base; }

Place in_shared(uint32_t address, Cta& cta) {
  const uint32_t rank = address >> kSharedRankShift;
  if (rank == cta.rank) return {&cta.shared, address & kSharedOffsetMask};
  auto& ctas = cta.cluster->ctas;
  if (rank >= ctas.size()) return {};
  return {&ctas[rank]->shared, address & kSharedOffsetMask};
}

}  // namespace

Region& Memory::add_global(uint64_t address, uint8_t* data, uint64_t bytes, std::string name, bool readonly,
                           bool initialised) {
  auto region = std::make_unique<Region>();
  region->base = address ? address : next_base_;
  region->bytes = bytes;
  region->data = data;
  region->name = std::move(name);
  region->readonly = readonly;
  region->initialised = initialised;
  region->index = static_cast<uint32_t>(globals_.size());
  next_base_ = std::max(next_base_, align_up(region->base + bytes + kGuardBytes, kBufferAlign));
  const auto at = std::upper_bound(globals_.begin(), globals_.end(), region->base, starts_before);
  Region& result = **globals_.insert(at, std::move(region));
  if (data != nullptr) machine_.checker->region_added(result);
  return result;
}

Region& Memory::add_global(uint64_t bytes, std::string name) {
  Region& region = add_global(0, nullptr, bytes, std::move(name), false, false);
  region.storage.assign(bytes, kGlobalPoison);
  region.data = region.storage.data();
  return region;
}

Region* Memory::find_global(uint64_t address) {
  if (last_ != nullptr && address - last_->base < last_->bytes) return last_;
  const auto after = std::upper_bound(globals_.begin(), globals_.end(), address, starts_before);
  if (after == globals_.begin()) return nullptr;
  Region* region = std::prev(after)->get();
  if (address - region->base >= region->bytes) return nullptr;
  last_ = region;
  return region;
}

Place Memory::find(Space space, uint64_t address, Cta* cta, Warp* warp, int lane) {
  if (space == Space::Generic) {
    if (address - kSharedWindow < kWindowSize) {
      space = Space::Shared;
      address -= kSharedWindow;
    } else if (address - kLocalWindow < kWindowSize) {
      space = Space::Local;
      address -= kLocalWindow;
    } else if (address - kParamWindow < kWindowSize) {
      space = Space::Param;
      address -= kParamWindow;
    } else {
      space = Space::Global;
    }
  }
  switch (space) {
    case Space::Shared:
    case Space::SharedCluster:
      return cta != nullptr && address >> 32 == 0 ? in_shared(static_cast<uint32_t>(address), *cta) : Place{};
    case Space::Param:
      return cta != nullptr ? Place{&cta->grid->params, address} : Place{};
    case Space::Local:
      return warp != nullptr ? warp->local_place(address, lane) : Place{};
    default: {
      Region* region = find_global(address);
      return region != nullptr ? Place{region, address - region->base} : Place{};
    }
  }
}

uint8_t* Memory::touch(const Access& access, Space space, uint64_t address, uint64_t bytes, Cta* cta) {
  const Place place = find(space, address, cta);
  if (place.region != nullptr) return touch(access, *place.region, place.offset, bytes);
  report_bad(access, nullptr, address, bytes);
  return nullptr;
}

uint8_t* Memory::touch(const Access& access, Region& region, uint64_t offset, uint64_t bytes) {
  const bool writes = access.kind != Access::Kind::Read;
  const uint64_t first = region.kind == Region::Kind::Shared ? kSharedBase : 0;
  if (offset < first || offset > region.bytes || bytes > region.bytes - offset || (writes && region.readonly)) {
    report_bad(access, &region, offset, bytes);
    return nullptr;
  }
  if (region.kind == Region::Kind::Shared && region.cta->exited()) {
    const Site& site = *access.site;
    // What the CTA itself left pending has been reported.
    if (site.launch == region.cta->grid->index && site.cta == region.cta->linear) return nullptr;
    machine_.report(code::kCluster, "shared memory of a CTA that has exited is accessed", site, &region, offset);
    return nullptr;
  }
  if (access.agent != nullptr) machine_.checker->access(access, region, offset, bytes);
  if (region.kind == Region::Kind::Global) count(access, region, offset, bytes);
  if (access.kind == Access::Kind::Write) note_change(access.agent);
  return region.data + offset;
}

void Memory::report_bad(const Access& access, const Region* region, uint64_t offset, uint64_t bytes) {
  const bool writes = access.kind != Access::Kind::Read;
  std::string message = writes ? "a write of " : "a read of ";
  message += std::to_string(bytes) + " bytes ";
  if (region == nullptr) {
    char text[24];
    std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(offset));
    message += std::string("at ") + text + ", where nothing is allocated";
    machine_.report(code::kOutOfBounds, message, *access.site);
    return;
  }
  const bool inside = offset <= region->bytes && bytes <= region->bytes - offset;
  if (!inside) {
    message += "at offset " + std::to_string(offset) + " of " + std::to_string(region->bytes) + " bytes";
  } else if (region->readonly && writes) {
    message += "to a read-only buffer";
  } else {
    message += "in the first " + std::to_string(kSharedBase) + " bytes of shared memory, which are the system's";
  }
  machine_.report(code::kOutOfBounds, message, *access.site, region, offset);
}

// Reads are counted by cells of 16 bytes: how often a byte was read is exact for reads of whole cells, a mean
// otherwise.
void Memory::count(const Access& access, Region& region, uint64_t offset, uint64_t bytes) {
  if (access.kind != Access::Kind::Read) region.bytes_written += bytes;
  if (access.kind == Access::Kind::Write) return;
  region.bytes_read += bytes;
  if (region.read_counts.empty()) region.read_counts.resize((region.bytes + kCountPage - 1) / kCountPage);
  while (bytes > 0) {
    auto& page = region.read_counts[offset / kCountPage];
    if (!page) page = std::make_unique<uint32_t[]>(kCountPage / kCountCell);
    const uint64_t part = std::min(bytes, kCountCell - offset % kCountCell);
    page[offset % kCountPage / kCountCell] += static_cast<uint32_t>(part);
    offset += part;
    bytes -= part;
  }
}

}  // namespace ptxrun
