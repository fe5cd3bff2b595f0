// What a program registers with the CUDA runtime: modules (PTX of its fat binaries) and kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ptxrun::shim {

struct Kernel {
  std::string name;   // as in the PTX
  size_t fat_binary;  // index
  int max_dynamic_smem = 48 << 10;
  bool non_portable_cluster = false;
};

// One PTX text of a fat binary.
struct Module {
  int arch;  // 90, 100, ...
  std::string_view ptx;
};

class Program {
 public:
  static Program& instance();

  size_t add_fat_binary(const void* wrapper);
  void add_kernel(size_t fat_binary, const void* host_function, const char* name);

  // nullptr for a function that is no kernel of this program.
  Kernel* find(const void* host_function);
  // The module of the kernel for `arch`; nullptr if its fat binary holds no PTX for it.
  const Module* module_of(const Kernel& kernel, int arch) const;

  const std::vector<std::vector<Module>>& fat_binaries() const { return fat_binaries_; }

 private:
  std::vector<std::vector<Module>> fat_binaries_;
  std::map<const void*, Kernel> kernels_;
};

// Bytes of each parameter of the entry, in order; empty also for an entry without parameters.
std::vector<size_t> parameter_sizes(std::string_view ptx, const std::string& kernel);

}  // namespace ptxrun::shim
