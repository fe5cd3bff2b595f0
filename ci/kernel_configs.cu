// For ci/kernel_resources.py, a JSON object a line: the numbers of every instance of the sm_100a and sm_103a kernel, as
// its headers give them, and threads and dynamic shared memory of the neutral kernels that take any.
#include <cstdio>
#include <utility>

#include "kernels/finalize/ring.cuh"
#include "kernels/prologue/kernel.cuh"
#include "kernels/route/cta_tile.cuh"
#include "kernels/sm100/experts/shared.cuh"
#include "kernels/sm100/instances.h"

namespace {

using namespace cake_moe;
using namespace cake_moe::sm100::experts;

template <typename C>
void print_instance() {
  std::printf(R"({"tokens": %d, "fused": %s, "threads": %d, "dynamic_smem": %zu, "tmem_columns": %d, "slots": %d, )"
              R"("fc1_stage_bytes": %d, "fc2_stage_bytes": %d})"
              "\n",
              C::kTokens, C::kQuantize ? "true" : "false", C::kThreads, sizeof(Shared<C>), C::kAllocated, C::kSlots,
              Fc1::kWeightBytes + Fc1::kScaleBytes, Fc2::kWeightBytes + Fc2::kScaleBytes);
}

void print_kernel(const char* name, int threads, size_t dynamic_smem) {
  std::printf(R"({"kernel": "%s", "threads": %d, "dynamic_smem": %zu})"
              "\n",
              name, threads, dynamic_smem);
}

template <int... kTokens>
void print_staged(TokenTileList<kTokens...>) {
  (print_instance<Config<kTokens>>(), ...);
}

}  // namespace

int main() {
  print_instance<Config<route::kCtaTileRows, true>>();
  print_staged(sm100::TokenTiles{});
  print_kernel("cake_moe_prologue", prologue::kThreads, sizeof(prologue::Shared));
  print_kernel("cake_moe_finalize_ring", finalize::kRingThreads, sizeof(finalize::Ring));
}
