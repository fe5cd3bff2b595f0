// Device memory of a program that runs as a whole: host memory at the same address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace ptxrun::shim {

struct Allocation {
  uint8_t* data;
  size_t bytes;
  bool written;  // by a copy or memset of the host, at least in part
};

class DeviceMemory {
 public:
  static DeviceMemory& instance();

  void* allocate(size_t bytes);
  // False for an address that is none of an allocation.
  bool free(void* address);
  // The allocation that holds the address, or nullptr.
  Allocation* find(const void* address);
  std::vector<Allocation> allocations() const;

 private:
  std::map<uint64_t, Allocation> by_address_;
};

// Executes the launches recorded so far; set by the interpreter, otherwise launches are only kept.
using Execute = void (*)();
void set_execute(Execute execute);
void execute_pending();

}  // namespace ptxrun::shim
