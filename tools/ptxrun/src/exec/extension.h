// State that an instruction family hangs on a warp, a CTA, a cluster, a grid or the machine without the owner knowing
// it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace ptxrun {

template <class Owner>
struct Extension {
  virtual ~Extension() = default;
  // The owner ends: a warp or CTA exits, a grid or the run completes. Findings about leftovers are made here.
  virtual void on_end(Owner&) {}
};

template <class Owner>
class Extensions {
 public:
  // The extension of type T (constructed with Owner& on first use).
  template <class T>
  T& get(Owner& owner) {
    const size_t i = index<T>();
    if (i >= slots_.size()) slots_.resize(i + 1);
    if (!slots_[i]) slots_[i] = std::make_unique<T>(owner);
    return static_cast<T&>(*slots_[i]);
  }
  template <class T>
  T* find() const {
    const size_t i = index<T>();
    return i < slots_.size() ? static_cast<T*>(slots_[i].get()) : nullptr;
  }
  void end(Owner& owner) {
    for (auto& slot : slots_)
      if (slot) slot->on_end(owner);
  }

 private:
  static size_t next_index() {
    static size_t next = 0;
    return next++;
  }
  template <class T>
  static size_t index() {
    static const size_t i = next_index();
    return i;
  }
  std::vector<std::unique_ptr<Extension<Owner>>> slots_;
};

}  // namespace ptxrun
