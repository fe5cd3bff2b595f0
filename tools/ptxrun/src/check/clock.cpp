#include "check/clock.h"

#include <algorithm>

namespace ptxrun::check {

namespace {
template <class Items>
auto find_serial(Items& items, uint32_t serial) {
  return std::lower_bound(items.begin(), items.end(), serial,
                          [](const auto& item, uint32_t wanted) { return item.serial < wanted; });
}
}  // namespace

uint32_t Clock::get(AgentId agent) const {
  if (!data_) return 0;
  const uint32_t serial = cta_serial_of(agent);
  if (serial < data_->floor) return UINT32_MAX;
  const auto item = find_serial(data_->blocks, serial);
  if (item == data_->blocks.end() || item->serial != serial) return 0;
  const auto& clocks = item->block->clocks;
  const uint32_t index = agent_index_of(agent);
  return index < clocks.size() ? clocks[index] : 0;
}

bool Clock::block_covers(const Block& block, const Block& other) {
  for (size_t i = 0; i < other.clocks.size(); ++i) {
    if (other.clocks[i] > (i < block.clocks.size() ? block.clocks[i] : 0)) return false;
  }
  return true;
}

Shared<Clock::Block> Clock::block_join(const Shared<Block>& a, const Shared<Block>& b) {
  if (a == b || block_covers(*a, *b)) return a;
  if (block_covers(*b, *a)) return b;
  Shared<Block> joined(new Block);
  joined->clocks = a->clocks;
  joined->clocks.resize(std::max(a->clocks.size(), b->clocks.size()));
  for (size_t i = 0; i < b->clocks.size(); ++i) joined->clocks[i] = std::max(joined->clocks[i], b->clocks[i]);
  return joined;
}

Shared<Clock::Block> Clock::block_meet(const Shared<Block>& a, const Shared<Block>& b) {
  if (a == b || block_covers(*b, *a)) return a;
  if (block_covers(*a, *b)) return b;
  Shared<Block> met(new Block);
  met->clocks.resize(std::min(a->clocks.size(), b->clocks.size()));
  for (size_t i = 0; i < met->clocks.size(); ++i) met->clocks[i] = std::min(a->clocks[i], b->clocks[i]);
  return met;
}

bool Clock::covers(const Clock& other) const {
  if (!other.data_ || data_ == other.data_) return true;
  if (!data_ || data_->floor < other.data_->floor) return false;
  auto mine = data_->blocks.begin();
  for (const Item& item : other.data_->blocks) {
    if (item.serial < data_->floor) continue;
    while (mine != data_->blocks.end() && mine->serial < item.serial) ++mine;
    if (mine == data_->blocks.end() || mine->serial != item.serial) return false;
    if (!(mine->block == item.block) && !block_covers(*mine->block, *item.block)) return false;
  }
  return true;
}

void Clock::raise(Epoch epoch) {
  if (covers(epoch)) return;
  const uint32_t serial = cta_serial_of(epoch.agent);
  const uint32_t index = agent_index_of(epoch.agent);
  Data& data = data_.own();
  auto item = find_serial(data.blocks, serial);
  if (item == data.blocks.end() || item->serial != serial) {
    item = data.blocks.insert(item, Item{serial, Shared<Block>(new Block)});
  }
  Block& block = item->block.own();
  if (block.clocks.size() <= index) block.clocks.resize(index + 1);
  block.clocks[index] = epoch.clock;
}

void Clock::raise_floor(uint32_t serial) {
  if (serial <= floor()) return;
  Data& data = data_.own();
  data.floor = serial;
  data.blocks.erase(data.blocks.begin(), find_serial(data.blocks, serial));
}

void Clock::join(const Clock& other) {
  if (covers(other)) return;
  if (other.covers(*this)) {
    data_ = other.data_;
    return;
  }
  Shared<Data> joined(new Data);
  joined->floor = std::max(data_->floor, other.data_->floor);
  joined->blocks.reserve(data_->blocks.size() + other.data_->blocks.size());
  auto a = find_serial(data_->blocks, joined->floor);
  auto b = find_serial(other.data_->blocks, joined->floor);
  const auto a_end = data_->blocks.end();
  const auto b_end = other.data_->blocks.end();
  while (a != a_end || b != b_end) {
    if (b == b_end || (a != a_end && a->serial < b->serial)) {
      joined->blocks.push_back(*a++);
    } else if (a == a_end || b->serial < a->serial) {
      joined->blocks.push_back(*b++);
    } else {
      joined->blocks.push_back(Item{a->serial, block_join(a->block, b->block)});
      ++a;
      ++b;
    }
  }
  data_ = std::move(joined);
}

void Clock::meet(const Clock& other) {
  if (other.covers(*this)) return;
  if (covers(other)) {
    data_ = other.data_;
    return;
  }
  const bool lower = data_->floor <= other.data_->floor;
  const Data& low = lower ? *data_ : *other.data_;
  const Data& high = lower ? *other.data_ : *data_;
  Shared<Data> met(new Data);
  met->floor = low.floor;
  auto b = high.blocks.begin();
  for (const Item& a : low.blocks) {
    if (a.serial < high.floor) {
      met->blocks.push_back(a);
      continue;
    }
    while (b != high.blocks.end() && b->serial < a.serial) ++b;
    if (b == high.blocks.end()) break;
    if (b->serial == a.serial) met->blocks.push_back(Item{a.serial, block_meet(a.block, b->block)});
  }
  data_ = std::move(met);
}

}  // namespace ptxrun::check
