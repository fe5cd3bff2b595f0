// Unit checks of src/check without a machine: clocks, shadow cells, order rules. Exits with the number of failures.
#include <chrono>
#include <cstdio>
#include <cstring>

#include "check/cell_pool.h"
#include "check/shadow.h"
#include "check/view.h"
#include "check/words.h"

namespace {

using namespace ptxrun::check;

int failures = 0;

#define CHECK(condition)                                          \
  do {                                                            \
    if (!(condition)) {                                           \
      std::printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                 \
    }                                                             \
  } while (false)

constexpr AgentId kA = agent_id(1, 0), kB = agent_id(1, 1), kC = agent_id(2, 0), kPipe = agent_id(1, 9);

// A small world: warps with clocks and one region.
struct World {
  std::shared_ptr<CellPool> pool = std::make_shared<CellPool>();
  Shadow shadow{pool, 4096, false};
  WarpClock a{kA}, b{kB}, c{kC};
  std::vector<RangeConflict> conflicts;

  Touch by(WarpClock& warp) {
    Touch touch;
    touch.epoch = touch.issuer = warp.self();
    touch.seen = &warp.seen();
    return touch;
  }
  Touch async(WarpClock& issuer, Epoch announced) {
    Touch touch = by(issuer);
    touch.epoch = announced;
    touch.path = Path::Async;
    return touch;
  }
  // Number of conflicts of the access.
  size_t access(Touch touch, Effect effect, uint64_t offset, uint64_t bytes) {
    conflicts.clear();
    shadow.touch(offset, bytes, touch, effect, conflicts);
    return conflicts.size();
  }
  size_t write(WarpClock& warp, uint64_t offset, uint64_t bytes) {
    return access(by(warp), Effect::Write, offset, bytes);
  }
  size_t read(WarpClock& warp, uint64_t offset, uint64_t bytes) {
    return access(by(warp), Effect::Read, offset, bytes);
  }
  static void hand_over(WarpClock& from, WarpClock& to) {
    View view;
    from.release(view);
    to.acquire(view);
  }
};

void test_clocks() {
  Clock x, y;
  x.raise({kA, 3});
  y.raise({kB, 2});
  y.raise({kC, 7});
  CHECK(!x.covers(y) && !y.covers(x));
  Clock z = x;
  z.join(y);
  CHECK(z.covers(x) && z.covers(y) && z.get(kC) == 7 && x.get(kC) == 0);
  x.join(z);
  CHECK(x.covers(z));
  x.raise_floor(2);
  CHECK(x.get(kA) == UINT32_MAX && x.get(kC) == 7 && x.covers({kB, 1000}) && !x.covers({kC, 8}));
  CHECK(!z.covers(x) && x.covers(z));
  z.join(x);
  CHECK(z.floor() == 2);
  CHECK(Clock().covers(Epoch{}) && !Clock().covers(Epoch{kA, 1}));
}

void test_what_both_clocks_know() {
  const AgentId d = agent_id(5, 0);
  Clock x, y;
  x.raise({kA, 3});
  x.raise({kB, 5});
  x.raise({kC, 1});
  y.raise({kA, 4});
  y.raise({kB, 2});
  y.raise({d, 1});
  Clock z = x;
  z.meet(y);
  CHECK(z.get(kA) == 3 && z.get(kB) == 2 && z.get(kC) == 0 && z.get(d) == 0 && x.get(kB) == 5);
  CHECK(x.covers(z) && y.covers(z));
  y.raise_floor(3);
  for (const bool swapped : {false, true}) {
    z = swapped ? y : x;
    z.meet(swapped ? x : y);
    CHECK(z.floor() == 0 && z.get(kB) == 5 && z.get(kC) == 1 && z.get(d) == 0);
  }
  x.raise_floor(2);
  x.raise({d, 7});
  x.meet(y);
  CHECK(x.floor() == 2 && x.get(kC) == 1 && x.get(d) == 1 && y.get(kC) == UINT32_MAX);
  y.meet(Clock());
  CHECK(y.empty());
  y.meet(x);
  CHECK(y.empty());
}

void test_races_of_warps() {
  World w;
  CHECK(w.write(w.a, 0, 64) == 0);
  CHECK(w.read(w.a, 0, 64) == 0);
  CHECK(w.read(w.b, 16, 4) == 1 && w.conflicts[0].conflict.relation == Relation::Unordered);
  CHECK(w.conflicts[0].offset == 16 && w.conflicts[0].conflict.other_writes && !w.conflicts[0].conflict.writes);
  World::hand_over(w.a, w.b);
  CHECK(w.read(w.b, 32, 16) == 0);
  CHECK(w.write(w.a, 32, 16) == 1);  // b still reads
  World::hand_over(w.b, w.a);
  CHECK(w.write(w.a, 48, 16) == 0);
  CHECK(w.read(w.c, 128, 4) == 1 && w.conflicts[0].conflict.kind == Conflict::Kind::Uninitialised);
}

void test_bytes_of_one_cell() {
  World w;
  CHECK(w.write(w.a, 0, 4) == 0);
  CHECK(w.write(w.b, 4, 4) == 0);
  CHECK(w.write(w.c, 8, 8) == 0);
  CHECK(w.read(w.a, 0, 4) == 0);
  CHECK(w.read(w.a, 3, 2) == 1);
  World::hand_over(w.b, w.a);
  CHECK(w.read(w.a, 0, 8) == 0);
  CHECK(w.read(w.a, 7, 2) == 1);
  CHECK(w.write(w.b, 2, 1) == 2);  // a wrote the byte and read it
}

void test_many_readers() {
  World w;
  w.write(w.a, 0, 16);
  View view;
  w.a.release(view);
  std::vector<WarpClock> readers;
  for (uint32_t i = 0; i < 40; ++i) {
    readers.emplace_back(agent_id(3 + i / 8, i % 8));
    readers.back().acquire(view);
    CHECK(w.read(readers.back(), 0, 16) == 0);
  }
  for (uint32_t i = 0; i < 39; ++i) World::hand_over(readers[i], w.a);
  CHECK(w.write(w.a, 0, 16) == 1);
  World::hand_over(readers[39], w.a);
  CHECK(w.write(w.a, 0, 16) == 0);
}

void test_old_reads_stay_judged() {
  // a reads bytes 0..3 and hands them on; its later read of other bytes must not count for them.
  World w;
  w.write(w.a, 0, 16);
  w.read(w.a, 0, 4);
  World::hand_over(w.a, w.b);
  w.read(w.a, 8, 4);
  CHECK(w.write(w.b, 0, 4) == 0);
  CHECK(w.write(w.b, 8, 4) == 1);
}

void test_proxies() {
  World w;
  w.write(w.a, 0, 64);
  const Epoch first{kPipe, 1};
  CHECK(w.access(w.async(w.a, first), Effect::Read, 0, 64) == 1);
  CHECK(w.conflicts[0].conflict.relation == Relation::Unfenced);
  w.a.fence_async(FenceSpace::Global);
  CHECK(w.access(w.async(w.a, first), Effect::Read, 0, 64) == 1);
  w.a.fence_async(FenceSpace::Shared);
  CHECK(w.access(w.async(w.a, first), Effect::Read, 0, 64) == 0);
  // The writer's fence travels with the handover; so does that of a third party on the way.
  World::hand_over(w.a, w.b);
  CHECK(w.access(w.async(w.b, first), Effect::Read, 0, 64) == 0);
  w.write(w.b, 64, 64);
  World::hand_over(w.b, w.a);
  CHECK(w.access(w.async(w.a, first), Effect::Read, 64, 64) == 1);
  w.a.fence_async(FenceSpace::All);
  World::hand_over(w.a, w.c);
  CHECK(w.access(w.async(w.c, first), Effect::Read, 64, 64) == 0);
}

void test_asynchronous_writes() {
  World w;
  const Epoch phase0{kPipe, 1}, phase1{kPipe, 2};
  CHECK(w.access(w.async(w.a, phase0), Effect::Write, 0, 256) == 0);
  CHECK(w.read(w.a, 0, 16) == 1);
  w.b.waited(phase0);
  CHECK(w.read(w.b, 16, 16) == 0);
  CHECK(w.read(w.c, 32, 16) == 1);
  // b's reader has not been waited for by the issuer of the next one.
  CHECK(w.access(w.async(w.a, phase1), Effect::Write, 16, 16) != 0);
  World::hand_over(w.b, w.a);
  CHECK(w.access(w.async(w.a, phase1), Effect::Write, 48, 16) == 0);
  CHECK(w.read(w.b, 48, 16) == 1);
}

void test_tensor_memory() {
  World w;
  const Epoch commit{kPipe, 1};
  const auto tensor = [&](WarpClock& warp, Epoch epoch) {
    Touch touch = w.async(warp, epoch);
    touch.path = Path::Tensor;
    touch.space = CellSpace::Tensor;
    touch.in_order = epoch.agent == kPipe;
    return touch;
  };
  w.access(tensor(w.a, commit), Effect::Write, 0, 64);
  const Epoch load{agent_id(1, 10), 1};
  CHECK(w.access(tensor(w.b, load), Effect::Read, 0, 64) == 1);
  View view;
  view.generic.raise(commit);
  view.tcgen05.raise(commit);
  w.b.acquire(view);
  CHECK(w.access(tensor(w.b, load), Effect::Read, 0, 64) == 1);
  CHECK(w.conflicts[0].conflict.relation == Relation::Unfenced);
  w.b.tcgen05_after_thread_sync();
  CHECK(w.access(tensor(w.b, load), Effect::Read, 0, 64) == 0);
  // The next multiplication must wait for the load, by wait::ld, fence and handover.
  const Epoch next{kPipe, 2};
  w.b.waited(load);
  World::hand_over(w.b, w.a);
  w.a.tcgen05_after_thread_sync();
  CHECK(w.access(tensor(w.a, next), Effect::Write, 0, 64) != 0);
  CHECK(w.conflicts[0].conflict.relation == Relation::Unfenced);
  w.b.tcgen05_before_thread_sync();
  World::hand_over(w.b, w.a);
  w.a.tcgen05_after_thread_sync();
  CHECK(w.access(tensor(w.a, next), Effect::Write, 0, 64) == 0);
}

void test_atomics() {
  World w;
  Touch strong_a = w.by(w.a), strong_b = w.by(w.b);
  strong_a.strong = strong_b.strong = true;
  w.write(w.c, 0, 16);
  World::hand_over(w.c, w.a);
  World::hand_over(w.c, w.b);
  strong_a.seen = &w.a.seen();
  CHECK(w.access(strong_a, Effect::Update, 0, 4) == 0);
  CHECK(w.access(strong_b, Effect::Update, 0, 4) == 0);
  CHECK(w.read(w.c, 0, 4) == 1);
}

void test_undefined_bytes() {
  World w;
  CHECK(!w.shadow.initialised(0, 4));
  w.write(w.a, 0, 24);
  CHECK(w.shadow.initialised(0, 24) && w.shadow.initialised(20, 4) && !w.shadow.initialised(20, 5));
  Touch lenient = w.by(w.a);
  lenient.lenient = true;
  CHECK(w.access(lenient, Effect::Read, 16, 16) == 0);
  CHECK(!w.shadow.initialised(16, 16));
  CHECK(w.read(w.a, 16, 16) == 1);
  w.access(w.by(w.a), Effect::Undefine, 4, 8);
  CHECK(w.shadow.initialised(0, 4) && !w.shadow.initialised(4, 1) && w.shadow.initialised(12, 4));
  CHECK(w.read(w.a, 8, 8) == 1 && w.conflicts[0].conflict.mask == 0x0F00);
}

void test_words() {
  Words words;
  WarpClock a{kA}, c{kC};
  const Domains near{{cta_domain(1), cluster_domain(1), kEverybody}},
      far{{cta_domain(2), cluster_domain(2), kEverybody}};
  View view;
  a.release(view);
  words.publish(8, near.of[0], view);
  int found = 0;
  words.collect(8, near, 3, [&](int, const View&) { ++found; });
  words.collect(8, far, 3, [&](int, const View&) { found += 100; });
  CHECK(found == 1);
  words.publish(8, kEverybody, view);
  words.collect(8, far, 3, [&](int, const View& known) { c.acquire(known); });
  CHECK(c.covers({kA, 1}));
  words.forget(8);
  words.collect(8, near, 3, [&](int, const View&) { found += 100; });
  CHECK(found == 1 && words.empty());
}

void test_cells_are_given_back() {
  World w;
  for (int round = 0; round < 20000; ++round) {
    w.write(w.a, 0, 4096);
    World::hand_over(w.a, w.b);
    w.read(w.b, 16 * (round % 200), 64);
    World::hand_over(w.b, w.a);
  }
  // Cells in use, and those that the table of transitions holds.
  CHECK(w.pool->live() < 3 * 4096 + 256);
}

// 132 CTAs of 20 warps that pass a baton around, and a tile that all of a CTA's warps read.
void time_scaling() {
  constexpr uint32_t kCtas = 132, kWarps = 20, kRounds = 50;
  std::vector<WarpClock> warps;
  for (uint32_t i = 0; i < kCtas * kWarps; ++i) warps.emplace_back(agent_id(1 + i / kWarps, i % kWarps));
  auto pool = std::make_shared<CellPool>();
  std::vector<std::unique_ptr<Shadow>> shadows;
  for (uint32_t i = 0; i < kCtas; ++i) shadows.push_back(std::make_unique<Shadow>(pool, 65536, true));
  std::vector<RangeConflict> conflicts;
  const auto start = std::chrono::steady_clock::now();
  uint64_t accesses = 0, handovers = 0;
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t cta = 0; cta < kCtas; ++cta) {
      View barrier;
      for (uint32_t i = 0; i < kWarps; ++i) {
        WarpClock& warp = warps[cta * kWarps + i];
        Touch touch;
        touch.epoch = touch.issuer = warp.self();
        touch.seen = &warp.seen();
        for (uint64_t at = 0; at < 2048; at += 128) {
          shadows[cta]->touch(i * 2048 + at, 128, touch, Effect::Write, conflicts);
          ++accesses;
        }
        warp.release(barrier);
        ++handovers;
      }
      for (uint32_t i = 0; i < kWarps; ++i) warps[cta * kWarps + i].acquire(barrier);
    }
    View grid;
    for (uint32_t cta = 0; cta < kCtas; ++cta) warps[cta * kWarps].release(grid);
    for (uint32_t cta = 0; cta < kCtas; ++cta) warps[cta * kWarps].acquire(grid);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  CHECK(conflicts.empty());
  std::printf("%llu accesses of 128 bytes and %llu barrier arrivals: %.3f s\n",
              static_cast<unsigned long long>(accesses), static_cast<unsigned long long>(handovers), seconds);
}

}  // namespace

int main(int argc, char** argv) {
  test_clocks();
  test_what_both_clocks_know();
  test_races_of_warps();
  test_bytes_of_one_cell();
  test_many_readers();
  test_old_reads_stay_judged();
  test_proxies();
  test_asynchronous_writes();
  test_tensor_memory();
  test_atomics();
  test_undefined_bytes();
  test_words();
  test_cells_are_given_back();
  if (argc > 1 && std::strcmp(argv[1], "time") == 0) time_scaling();
  return failures;
}
