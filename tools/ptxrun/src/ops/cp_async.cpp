// cp.async of 4, 8 or 16 bytes a thread, its groups, and arrivals on mbarriers that follow it.
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>

#include "check/finding.h"
#include "decode/builder.h"
#include "decode/registry.h"
#include "exec/warp.h"
#include "ops/mbarrier.h"
#include "ops/spaces.h"

namespace ptxrun::ops {

namespace {

struct CopyMods {
  uint32_t bytes = 0;
  int8_t source_bytes = -1;  // operand
  int8_t ignore = -1;        // predicate: the source is not read
};

struct Group {
  LaneMask lanes = 0;
  uint32_t pending = 0;
  check::Epoch epoch;
};

// Copies of a warp. A group holds the copies that its lanes had issued since their commit before.
struct WarpCopies : Extension<Warp>, WaitObject {
  explicit WarpCopies(Warp& warp) : warp(warp) {}
  Warp& warp;
  std::deque<std::shared_ptr<Group>> committed;
  std::shared_ptr<Group> open = std::make_shared<Group>();
  OrderKey order = 0;
  std::string describe() const override {
    uint32_t pending = open->pending;
    for (const auto& group : committed) pending += group->pending;
    return "cp.async groups of warp " + std::to_string(warp.index) + ", " + std::to_string(pending) + " copies pending";
  }
};

struct Piece {
  Place from, to;
  uint32_t bytes = 0, read = 0;
};

class AsyncCopy : public AsyncOp {
 public:
  void complete(Machine& machine) override {
    for (const Piece& piece : pieces) move(machine, piece);
    --group->pending;
    copies->wake_all();
  }
  std::string describe() const override { return "cp.async of " + std::to_string(bytes) + " bytes"; }

  std::vector<Piece> pieces;
  std::shared_ptr<Group> group;
  WarpCopies* copies = nullptr;

 private:
  void move(Machine& machine, const Piece& piece) const {
    Access access;
    access.site = &site;
    const uint8_t* from = nullptr;
    if (piece.read) {
      from = machine.memory.touch(access, *piece.from.region, piece.from.offset, piece.read);
      if (!from) return;
    }
    access.kind = Access::Kind::Write;
    uint8_t* to = machine.memory.touch(access, *piece.to.region, piece.to.offset, piece.bytes);
    if (!to) return;
    if (from) std::memcpy(to, from, piece.read);
    std::memset(to + piece.read, 0, piece.bytes - piece.read);
  }
};

Place find(Warp& warp, Space space, uint64_t address, uint32_t bytes, LaneMask lane) {
  if (address % bytes) {
    warp.report(code::kMisaligned, "a cp.async address is not a multiple of " + std::to_string(bytes), lane);
    return {};
  }
  const Place place = warp.machine.memory.find(space, address, &warp.cta);
  if (!place.region) {
    Access access;
    access.site = &warp.site(lane);
    warp.machine.memory.report_bad(access, nullptr, address, bytes);
  }
  return place;
}

uint32_t bytes_to_read(const Warp& warp, const Instr& instr, int lane) {
  const CopyMods& mods = instr.mods<CopyMods>();
  if (mods.ignore >= 0 && warp.predicate(instr.op(mods.ignore)) >> lane & 1) return 0;
  if (mods.source_bytes < 0) return mods.bytes;
  return std::min(mods.bytes, static_cast<uint32_t>(lane_value(warp, instr.op(mods.source_bytes), lane)));
}

// Neighbouring lanes become one piece.
void append(std::vector<Piece>& pieces, const Piece& piece) {
  if (!pieces.empty()) {
    Piece& last = pieces.back();
    const bool adjacent = last.to.region == piece.to.region && last.to.offset + last.bytes == piece.to.offset &&
                          last.read == last.bytes && piece.read == piece.bytes &&
                          last.from.region == piece.from.region && last.from.offset + last.bytes == piece.from.offset;
    if (adjacent) {
      last.bytes += piece.bytes;
      last.read += piece.read;
      return;
    }
  }
  pieces.push_back(piece);
}

Step run_copy(Warp& warp, const Instr& instr, LaneMask active) {
  const CopyMods& mods = instr.mods<CopyMods>();
  WarpCopies& copies = warp.ext<WarpCopies>();
  if (!copies.order) copies.order = warp.machine.async.new_order();
  auto copy = std::make_unique<AsyncCopy>();
  for_lanes(active, [&](int lane) {
    const LaneMask mask = LaneMask{1} << lane;
    Piece piece;
    piece.bytes = mods.bytes;
    piece.read = bytes_to_read(warp, instr, lane);
    piece.to = find(warp, Space::Shared, lane_value(warp, instr.op(0), lane), mods.bytes, mask);
    if (!piece.to.region) return;
    if (piece.read) piece.from = find(warp, Space::Global, lane_value(warp, instr.op(1), lane), mods.bytes, mask);
    if (piece.read && !piece.from.region) return;
    append(copy->pieces, piece);
  });
  auto& checks = check::checks(warp.machine);
  check::Issue issue = checks.issue(warp, checks.pipe(warp, check::PipeKind::CpAsync), Proxy::Generic);
  warp.site(active);
  for (const Piece& piece : copy->pieces) {
    if (piece.read) issue.read(*piece.from.region, piece.from.offset, piece.read);
    issue.write(*piece.to.region, piece.to.offset, piece.bytes);
    copy->bytes += piece.read;
  }
  copy->site = warp.site();
  copy->cta = &warp.cta;
  copy->order = copies.order;
  copy->group = copies.open;
  copy->copies = &copies;
  ++copies.open->pending;
  warp.machine.async.issue(std::move(copy));
  return Step::Next;
}

void commit(Warp& warp, LaneMask lanes) {
  WarpCopies& copies = warp.ext<WarpCopies>();
  copies.open->lanes = lanes;
  copies.open->epoch = check::checks(warp.machine).pipe(warp, check::PipeKind::CpAsync).close();
  copies.committed.push_back(std::move(copies.open));
  copies.open = std::make_shared<Group>();
}

Step run_commit(Warp& warp, const Instr&, LaneMask active) {
  commit(warp, active);
  return Step::Next;
}

struct WaitMods {
  uint32_t groups;
  bool all;
};

Step run_wait(Warp& warp, const Instr& instr, LaneMask active) {
  const WaitMods& mods = instr.mods<WaitMods>();
  WarpCopies& copies = warp.ext<WarpCopies>();
  if (mods.all && !warp.resumed()) commit(warp, active);
  // Past the newest group that is waited for.
  size_t end = copies.committed.size();
  for (uint32_t newer = 0; end > 0; --end) {
    if (copies.committed[end - 1]->lanes & active && newer++ == mods.groups) break;
  }
  for (size_t i = 0; i < end; ++i) {
    if (!copies.committed[i]->pending) continue;
    warp.park(copies, active);
    return Step::Next;
  }
  if (end == 0) return Step::Next;
  check::checks(warp.machine).waited(warp, copies.committed[end - 1]->epoch);
  copies.committed.erase(copies.committed.begin(), copies.committed.begin() + static_cast<std::ptrdiff_t>(end));
  return Step::Next;
}

// The arrivals of a warp's lanes, once the copies before are complete.
class CopyArrival : public AsyncOp {
 public:
  void complete(Machine&) override {
    for (const auto& [barrier, count] : arrivals) {
      if (barrier->valid) mbarrier_arrive(*barrier, count, view, site);
    }
  }
  std::string describe() const override { return "arrival after cp.async"; }

  std::vector<std::pair<Mbarrier*, uint32_t>> arrivals;
  check::View view;
};

struct ArriveMods {
  Space space;
  bool counted;  // .noinc: the arrivals are part of the expected count
};

Step run_arrive(Warp& warp, const Instr& instr, LaneMask active) {
  const ArriveMods& mods = instr.mods<ArriveMods>();
  WarpCopies& copies = warp.ext<WarpCopies>();
  if (!copies.order) copies.order = warp.machine.async.new_order();
  auto arrival = std::make_unique<CopyArrival>();
  for_lanes(active, [&](int lane) {
    Mbarrier* barrier = find_mbarrier(warp, mods.space, lane_value(warp, instr.op(0), lane), LaneMask{1} << lane);
    if (!barrier) return;
    if (!mods.counted) ++barrier->pending;
    auto& arrivals = arrival->arrivals;
    const auto known =
        std::find_if(arrivals.begin(), arrivals.end(), [&](const auto& item) { return item.first == barrier; });
    if (known == arrivals.end()) {
      arrivals.emplace_back(barrier, 1);
    } else {
      ++known->second;
    }
  });
  auto& checks = check::checks(warp.machine);
  checks.release(warp, arrival->view);
  checks.announce(arrival->view, checks.pipe(warp, check::PipeKind::CpAsync).close());
  arrival->site = warp.site(active);
  arrival->cta = &warp.cta;
  arrival->order = copies.order;
  warp.machine.async.issue(std::move(arrival));
  return Step::Next;
}

void decode_copy(Decoder& d, Instr& out) {
  out.op_class = OpClass::Copy;
  Modifiers& modifiers = d.modifiers();
  modifiers.take("async");
  if (modifiers.take_one({"ca", "cg"}) < 0) d.unknown();
  if (take_shared_space(modifiers) != Space::Shared || !modifiers.take("global")) d.unknown();
  const bool hint = modifiers.take("L2::cache_hint");
  modifiers.take_one({"L2::64B", "L2::128B", "L2::256B"});
  CopyMods mods;
  d.address(d.operand(0));
  d.address(d.operand(1));
  mods.bytes = static_cast<uint32_t>(d.immediate(d.operand(2)));
  if (mods.bytes != 4 && mods.bytes != 8 && mods.bytes != 16) d.unknown("4, 8 or 16 bytes");
  const size_t count = d.operand_count() - (hint ? 1 : 0);
  if (count > 3) {
    const ast::Operand& operand = d.operand(3);
    const Binding* binding = d.builder().find(operand.name);
    if (binding && binding->kind == Binding::Kind::Predicate) {
      mods.ignore = static_cast<int8_t>(d.read_predicate(operand));
    } else {
      mods.source_bytes = static_cast<int8_t>(d.read(operand, 32));
    }
  }
  if (hint) d.read(d.operand(count), 64);
  d.finish(count + (hint ? 1 : 0));
  if (count > 4) d.unknown("wrong number of operands");
  out.set_mods(mods);
  out.handler = run_copy;
}

void decode_commit(Decoder& d, Instr& out) {
  out.op_class = OpClass::Copy;
  for (const char* word : {"async", "commit_group"}) d.modifiers().take(word);
  d.finish(0);
  out.handler = run_commit;
}

void decode_wait(Decoder& d, Instr& out) {
  out.op_class = OpClass::Copy;
  d.modifiers().take("async");
  WaitMods mods{0, d.modifiers().take("wait_all")};
  d.modifiers().take("wait_group");
  if (!mods.all) mods.groups = static_cast<uint32_t>(d.immediate(d.operand(0)));
  d.finish(mods.all ? 0 : 1);
  out.set_mods(mods);
  out.handler = run_wait;
}

void decode_arrive(Decoder& d, Instr& out) {
  out.op_class = OpClass::Copy;
  for (const char* word : {"async", "mbarrier", "arrive"}) d.modifiers().take(word);
  ArriveMods mods{};
  mods.counted = d.modifiers().take("noinc");
  mods.space = take_shared_space(d.modifiers());
  if (!d.modifiers().take("b64")) d.unknown();
  d.address(d.operand(0));
  d.finish(1);
  out.set_mods(mods);
  out.handler = run_arrive;
}

const Family copy_family({"cp.async"}, decode_copy);
const Family commit_family({"cp.async.commit_group"}, decode_commit);
const Family wait_family({"cp.async.wait_group", "cp.async.wait_all"}, decode_wait);
const Family arrive_family({"cp.async.mbarrier.arrive"}, decode_arrive);

}  // namespace

}  // namespace ptxrun::ops
