// FC1, SiTU and requantisation. A unit is one token tile by kTileRows stored weight rows; CTAs take units round robin,
// so that neighbouring CTAs share a tile's tokens and an expert's weights in L2. FC2's CTAs take the SMs of those that
// have none left.
//
//   producers  --- weights_arrived, tokens_arrived --->    consumers
//   producers  <-- weights_consumed, tokens_consumed ---   consumers   (one arrival a warp)
//   consumers  --- tiles[tile].w += 1 ---------------->    FC2         (hq and hs of the tile by 64 rows are written)
//
// With roles, warpgroups that dequantise are the consumers of weights, those that multiply the ones of tokens and FC2's
// announcers, and between them:
//
//   dequantisers  --- operands_arrived --->     multipliers
//   dequantisers  <-- operands_consumed ----    multipliers
#pragma once

#include "kernels/sm90/fc1/epilogue.cuh"
#include "kernels/sm90/fc1/mainloop.cuh"
#include "kernels/sm90/fc1/produce.cuh"
#include "kernels/sm90/fc1/roles.cuh"

namespace cake_moe::sm90::fc1 {

template <typename C>
__device__ __forceinline__ void consume(const Args& args, Shared<C>& shared, int group, int units) {
  Position<C> at;
  for_each_unit<C>(args, units, [&](const Unit& unit) {
    const SpreadConstants constants(args, unit.expert);
    float acc[C::kTokens / 2];
    accumulate_rows(shared, at, group, __shfl_sync(~0u, unit.rows, 0), acc);
    store_unit<C>(args, shared, group, group, unit, constants, acc);
  });
}

template <typename C>
__device__ __forceinline__ void init_barriers(Shared<C>& shared) {
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < C::kWeightSlots; ++slot) {
      ptx::mbarrier_init(&shared.weights_arrived[slot], 1);
      ptx::mbarrier_init(&shared.weights_consumed[slot], 4 * (C::kRoles ? C::kPairs : C::kConsumers));
    }
    for (int slot = 0; slot < C::kTokenSlots; ++slot) {
      ptx::mbarrier_init(&shared.tokens_arrived[slot], 32 * C::kTokenWarps);
      ptx::mbarrier_init(&shared.tokens_consumed[slot], 4 * C::kStoringGroups);
    }
    if constexpr (C::kRoles) {
      for (int slot = 0; slot < C::kPairs * C::kOperandSlots; ++slot) {
        ptx::mbarrier_init(&shared.operands_arrived[0][slot], 4);
        ptx::mbarrier_init(&shared.operands_consumed[0][slot], 4);
      }
    }
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
}

// By the whole CTA, once the token tiles are known and the barriers set.
template <typename C>
__device__ __forceinline__ void compute(const Args& args, const CUtensorMap& weights, Shared<C>& shared) {
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), units = __ldcg(args.tile_count) * C::kRowBlocks;
  if (warp >= 4 * C::kConsumers) {
    if constexpr (C::kWide) ptx::lower_registers<C::kProducerRegisters>();
    const int producer = warp - 4 * C::kConsumers;
    if (producer < C::kTokenWarps) {
      produce_tokens(args, shared, producer, units);
    } else if (threadIdx.x % 32 == 0) {
      produce_weights(args, weights, shared, units);
    }
  } else if constexpr (C::kRoles) {
    const int pair = warp / 4 % C::kPairs;
    if (warp < 4 * C::kPairs) {
      ptx::raise_registers<C::kMultiplierRegisters>();
      multiply_units(args, shared, pair, units);
    } else {
      ptx::lower_registers<C::kDequantiserRegisters>();
      dequantize_rows(args, shared, pair, units);
    }
  } else {
    if constexpr (C::kWide) ptx::raise_registers<C::kConsumerRegisters>();
    consume(args, shared, warp / 4, units);
  }
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, C::kCtasPerSm)
    cake_moe_sm90_fc1(const Args args, const __grid_constant__ CUtensorMap weights) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared<C>& shared = *reinterpret_cast<Shared<C>*>(memory);
  static_assert(sizeof(Shared<C>) <= max_smem_bytes(C::kCtasPerSm));
  if (threadIdx.x == 0) ptx::prefetch_tensor_map(&weights);
  init_barriers(shared);
  ptx::grid_dependency_wait();
  ptx::grid_launch_dependents();
  compute(args, weights, shared);
}

}  // namespace cake_moe::sm90::fc1
