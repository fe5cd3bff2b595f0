#include "kernels/cpu/isa.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace cake_moe::cpu {
namespace {

constexpr Isa kAllIsas[] = {Isa::kAvx512, Isa::kAvx2, Isa::kPortable};  // best first

Isa choose_isa() {
  const char* wanted = std::getenv("CAKE_MOE_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') {
    for (const Isa isa : kAllIsas) {
      if (isa_supported(isa)) return isa;
    }
  }
  for (const Isa isa : kAllIsas) {
    if (wanted == std::string(isa_name(isa))) {
      if (isa_supported(isa)) return isa;
      throw std::runtime_error(std::string("CAKE_MOE_CPU_ISA: this processor or build has no ") + wanted);
    }
  }
  throw std::invalid_argument(std::string("CAKE_MOE_CPU_ISA must be portable, avx2 or avx512, got ") + wanted);
}

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "?";
}

bool isa_supported(Isa isa) {
  if (isa == Isa::kPortable) return true;
#if defined(CAKE_CPU_X86)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (isa == Isa::kAvx2) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

Isa selected_isa() {
  static const Isa isa = choose_isa();
  return isa;
}

const Kernels& kernels(Isa isa) {
#if defined(CAKE_CPU_X86)
  if (isa == Isa::kAvx512) return kAvx512Kernels;
  if (isa == Isa::kAvx2) return kAvx2Kernels;
#else
  static_cast<void>(isa);
#endif
  return kPortableKernels;
}

}  // namespace cake_moe::cpu
