#include "check/cell.h"

#include <algorithm>

namespace ptxrun::check {

namespace {

constexpr size_t kMaxSingleReaders = 8;

bool known(const Entry& entry, const Clock& clock, Epoch self) {
  if (entry.is_many()) return clock.covers(entry.many);
  if (entry.epoch.agent == self.agent) return entry.epoch.clock <= self.clock;
  return clock.covers(entry.epoch);
}

// Nothing that started after the floor can be unordered with it.
bool history(const Entry& entry, uint32_t floor) {
  if (entry.is_many()) return entry.many.below(floor);
  return cta_serial_of(entry.epoch.agent) < floor;
}

bool differs(Layout written, Layout read) {
  return written != Layout::Unknown && read != Layout::Unknown && written != read;
}

const Clock& fenced_clock(const Touch& touch) {
  switch (touch.path) {
    case Path::TensorMap:
      return touch.seen->tensormap;
    case Path::Tensor:
      return touch.seen->tcgen05;
    default:
      return touch.space == CellSpace::Shared ? touch.seen->async_shared : touch.seen->async_global;
  }
}

bool same_source(const Entry& a, const Entry& b) {
  return a.epoch == b.epoch && a.instr == b.instr && a.path == b.path && a.strong == b.strong && a.object == b.object &&
         a.layout == b.layout && !a.is_many() && !b.is_many();
}

Entry make_entry(const Touch& touch, ByteMask mask) {
  return Entry{touch.epoch,  touch.instr,  mask,         touch.warp, touch.path,
               touch.strong, touch.object, touch.layout, Clock()};
}

void add(std::vector<Entry>& entries, const Entry& added) {
  for (Entry& entry : entries) {
    if (same_source(entry, added)) {
      entry.mask |= added.mask;
      return;
    }
  }
  entries.push_back(added);
}

// Copies `from` without the bytes of `mask` in entries for which `drop` holds.
template <class Drop>
void keep(const std::vector<Entry>& from, ByteMask mask, std::vector<Entry>& to, Drop drop) {
  to.clear();
  for (const Entry& entry : from) {
    const bool cut = (entry.mask & mask) != 0 && drop(entry);
    const ByteMask left = cut ? entry.mask & ~mask : entry.mask;
    if (!left) continue;
    to.push_back(entry);
    to.back().mask = left;
  }
}

// Many readers of the same bytes become one clock.
void compact_readers(std::vector<Entry>& reads, ByteMask mask) {
  const auto counted = [mask](const Entry& entry) { return entry.mask == mask && !entry.strong; };
  if (static_cast<size_t>(std::count_if(reads.begin(), reads.end(), counted)) <= kMaxSingleReaders) return;
  Entry merged;
  std::vector<Entry> rest;
  for (const Entry& entry : reads) {
    if (!counted(entry)) {
      rest.push_back(entry);
      continue;
    }
    Clock clock = std::move(merged.many);
    if (entry.is_many()) {
      clock.join(entry.many);
    } else {
      clock.raise(entry.epoch);
    }
    merged = entry;
    merged.many = std::move(clock);
  }
  rest.push_back(merged);
  reads = std::move(rest);
}

}  // namespace

Relation relate(const Entry& before, bool before_writes, const Touch& touch) {
  if (before.strong && touch.strong) return Relation::Ordered;
  if (touch.in_order && before.epoch.agent == touch.epoch.agent && !before.is_many()) return Relation::Ordered;
  if (!known(before, touch.seen->generic, touch.issuer)) return Relation::Unordered;
  if (touch.path == Path::Generic) return Relation::Ordered;
  // Reads that are over cannot see a later write, whatever its proxy.
  const bool crosses = touch.path == Path::Tensor || (before_writes && before.path == Path::Generic);
  if (!crosses) return Relation::Ordered;
  const Epoch no_program_order;
  return known(before, fenced_clock(touch), no_program_order) ? Relation::Ordered : Relation::Unfenced;
}

void evaluate(const Cell& before, const Touch& touch, Effect effect, ByteMask mask, Cell& after,
              std::vector<Conflict>& conflicts) {
  if (effect == Effect::Undefine) {
    after = before;
    after.initialised &= static_cast<ByteMask>(~mask);
    return;
  }
  const bool writes = effect != Effect::Read;
  const bool reads = effect != Effect::Write;
  if (reads && !touch.object && !touch.lenient && (mask & ~before.initialised)) {
    conflicts.push_back({.kind = Conflict::Kind::Uninitialised,
                         .writes = writes,
                         .mask = static_cast<ByteMask>(mask & ~before.initialised),
                         .other = {}});
  }
  // Reported once: the same bytes are then taken as given.
  const bool stays_undefined = effect == Effect::Read && touch.lenient;
  after.initialised = stays_undefined ? before.initialised : before.initialised | mask;
  if (!touch.tracked) {
    after.writes.clear();
    after.reads.clear();
    return;
  }

  const uint32_t floor = touch.seen->generic.floor();
  const auto check = [&](const Entry& entry, bool entry_writes) {
    if (!(entry.mask & mask)) return;
    Conflict conflict{.writes = writes,
                      .other_writes = entry_writes,
                      .mask = static_cast<ByteMask>(entry.mask & mask),
                      .other = entry};
    if (entry_writes && entry.object && !touch.object && !history(entry, floor)) {
      conflict.kind = Conflict::Kind::Object;
      conflicts.push_back(conflict);
      return;
    }
    if (entry_writes && cta_serial_of(entry.epoch.agent) >= touch.read_only_from) {
      conflict.kind = Conflict::Kind::ReadOnly;
      conflicts.push_back(conflict);
      return;
    }
    conflict.relation = relate(entry, entry_writes, touch);
    if (conflict.relation != Relation::Ordered) {
      conflicts.push_back(conflict);
    } else if (reads && entry_writes && differs(entry.layout, touch.layout)) {
      conflict.kind = Conflict::Kind::Layout;
      conflict.layout = touch.layout;
      conflicts.push_back(conflict);
    }
  };
  for (const Entry& entry : before.writes) check(entry, true);
  if (writes) {
    for (const Entry& entry : before.reads) check(entry, false);
  }

  const auto is_history = [floor](const Entry& entry) { return history(entry, floor); };
  if (writes) {
    const auto always = [](const Entry&) { return true; };
    keep(before.writes, mask, after.writes, always);
    keep(before.reads, mask, after.reads, always);
    std::erase_if(after.writes, is_history);
    std::erase_if(after.reads, is_history);
    add(after.writes, make_entry(touch, mask));
    return;
  }
  after.writes = before.writes;
  std::erase_if(after.writes, is_history);
  // An earlier read that this one is ordered after needs no entry of its own. Only for warps: knowing that an
  // asynchronous operation is complete does not imply knowing what its issuer knew.
  const bool by_warp = touch.epoch == touch.issuer;
  keep(before.reads, mask, after.reads, [&](const Entry& entry) {
    if (entry.strong != touch.strong || entry.is_many()) return false;
    if (entry.epoch.agent == touch.epoch.agent) return entry.path == touch.path;
    return by_warp && touch.seen->generic.covers(entry.epoch);
  });
  std::erase_if(after.reads, is_history);
  add(after.reads, make_entry(touch, mask));
  compact_readers(after.reads, mask);
}

}  // namespace ptxrun::check
