// Vector clocks that stay small: one block of clocks a thread block (CTA), shared between copies until one of them
// changes.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace ptxrun::check {

// CTA serial number (20 bits, counted over all launches of a run) and an index inside that CTA (12 bits).
using AgentId = uint32_t;

inline constexpr uint32_t kAgentIndexBits = 12;
inline constexpr uint32_t kMaxAgentsPerCta = 1u << kAgentIndexBits;
inline constexpr uint32_t kMaxCtaSerial = (1u << (32 - kAgentIndexBits)) - 1;

constexpr AgentId agent_id(uint32_t cta_serial, uint32_t index) { return cta_serial << kAgentIndexBits | index; }
constexpr uint32_t cta_serial_of(AgentId agent) { return agent >> kAgentIndexBits; }
constexpr uint32_t agent_index_of(AgentId agent) { return agent & (kMaxAgentsPerCta - 1); }

// A point in an agent's life. Agent 0 is the host, whose work is ordered before every launch.
struct Epoch {
  AgentId agent = 0;
  uint32_t clock = 0;
  bool operator==(const Epoch&) const = default;
};

template <class T>
class Shared {
 public:
  Shared() = default;
  explicit Shared(T* object) : object_(object) { retain(); }
  Shared(const Shared& other) : object_(other.object_) { retain(); }
  Shared(Shared&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Shared& operator=(Shared other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Shared() {
    if (object_ && --object_->references == 0) delete object_;
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  bool operator==(const Shared& other) const { return object_ == other.object_; }

  // An object that only this pointer holds: the same one, or a copy.
  T& own() {
    if (!object_) {
      *this = Shared(new T);
    } else if (object_->references > 1) {
      T* copy = new T(*object_);
      copy->references = 0;
      *this = Shared(copy);
    }
    return *object_;
  }

 private:
  void retain() {
    if (object_) ++object_->references;
  }
  T* object_ = nullptr;
};

class Clock {
 public:
  bool covers(Epoch epoch) const {
    if (epoch.agent == 0) return true;
    return epoch.clock <= get(epoch.agent);
  }
  bool covers(const Clock& other) const;
  uint32_t get(AgentId agent) const;
  uint32_t floor() const { return data_ ? data_->floor : 0; }
  bool empty() const { return !data_; }
  // True if every agent in this clock belongs to a CTA below `serial`.
  bool below(uint32_t serial) const { return !data_ || data_->blocks.empty() || data_->blocks.back().serial < serial; }

  void raise(Epoch epoch);
  // Everything that CTAs below `serial` ever do is covered.
  void raise_floor(uint32_t serial);
  void join(const Clock& other);
  // What the other does not cover, too, is forgotten.
  void meet(const Clock& other);

 private:
  struct Block {
    uint32_t references = 0;
    std::vector<uint32_t> clocks;
  };
  struct Item {
    uint32_t serial;
    Shared<Block> block;
  };
  struct Data {
    uint32_t references = 0;
    uint32_t floor = 0;
    std::vector<Item> blocks;  // by serial
  };
  static bool block_covers(const Block& block, const Block& other);
  static Shared<Block> block_join(const Shared<Block>& a, const Shared<Block>& b);
  static Shared<Block> block_meet(const Shared<Block>& a, const Shared<Block>& b);
  Shared<Data> data_;
};

}  // namespace ptxrun::check
