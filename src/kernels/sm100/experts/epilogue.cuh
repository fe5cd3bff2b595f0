// The epilogue warps. A warp owns 32 stored rows of a unit, two fragments of sixteen: in FC1 the even and the odd
// features of one requantisation block, up rows beside their gate rows; in FC2 four neighbouring output columns a
// thread.
#pragma once

#include <cstdint>

#include "kernels/common/activation.cuh"
#include "kernels/ptx/convert_half.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/ptx/tcgen05.cuh"
#include "kernels/quantize/block.cuh"
#include "kernels/sm100/experts/shared.cuh"
#include "numerics/nvfp4.h"

namespace cake_moe::sm100::experts {

// Eight tokens of the warp's rows: fragments of rows 0..15 and of rows 16..31.
struct Fragments {
  float first[4], second[4];

  __device__ __forceinline__ explicit Fragments(uint32_t sums) {
    ptx::tmem_load_16x8(first, sums);
    ptx::tmem_load_16x8(second, sums + (16 << 16));
    ptx::tmem_load_wait();
  }
};

__device__ __forceinline__ float activate(const Activation& act, float gate, float up) {
  const float gs = act.scaled(gate), us = act.scaled(up), result = act(gs, us);
  return act.regular(result) ? result : act.exact(gs, us);
}

// The block of one token: eight lanes (equal lane % 4) hold two features each.
__device__ __forceinline__ void requantize(float even, float odd, float encode, uint8_t* codes, uint8_t* scale,
                                           bool store) {
  const int pair = threadIdx.x % 32 / 4;
  float amax = max_magnitude(abs_bits(even), abs_bits(odd));
#pragma unroll
  for (int lanes = 4; lanes < 32; lanes *= 2) amax = max_magnitude(amax, __shfl_xor_sync(~0u, amax, lanes));
  const bool nan = is_nan(amax);
  const uint8_t block_scale = hidden_block_scale(amax, encode);
  const float factor = hidden_block_factor(block_scale, encode);
  const uint32_t byte = encode_e2m1(mul_rn(even, factor)) | encode_e2m1(mul_rn(odd, factor)) << 4;
  if (!store) return;
  codes[pair] = static_cast<uint8_t>(nan ? 0 : byte);
  if (pair == 0) *scale = nan ? kE4m3Nan : block_scale;
}

template <typename C>
__device__ __forceinline__ void store_fc1(const Args& args, const Item& item, uint32_t sums, int warp) {
  const Activation act(Constants(args.fc1, item.expert), 1.0f);
  const int block = item.row_block * C::kEpilogueWarps + warp, lane = threadIdx.x % 32;
#pragma unroll 1
  for (int first = 0; first < item.rows; first += 8) {
    const Fragments sum(sums + first);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int token = first + 2 * (lane % 4) + c;
      const int64_t row = item.first_row + token;
      requantize(activate(act, sum.first[2 + c], sum.first[c]), activate(act, sum.second[2 + c], sum.second[c]),
                 act.encode, args.hq + row * kFc2RowBytes + 8 * block, args.hs + row * kFc2Groups + block,
                 token < item.rows);
    }
  }
  __syncwarp();
  if (lane == 0) ptx::add_release(&args.tiles[item.tile].w, 1);
}

template <typename C>
__device__ __forceinline__ void store_fc2(const Args& args, const Item& item, uint32_t sums, int warp) {
  const float alpha = __ldg(&args.fc2.alpha[item.expert]);
  const int lane = threadIdx.x % 32;
  const int column = item.row_block * kMmaRows + 32 * warp + lane / 4 * 4;
#pragma unroll 1
  for (int first = 0; first < item.rows; first += 8) {
    const Fragments sum(sums + first);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int token = first + 2 * (lane % 4) + c;
      const uint32_t low = ptx::cvt_bf16x2(mul_rn(sum.first[2 + c], alpha), mul_rn(sum.first[c], alpha));
      const uint32_t high = ptx::cvt_bf16x2(mul_rn(sum.second[2 + c], alpha), mul_rn(sum.second[c], alpha));
      if (token < item.rows) {
        *reinterpret_cast<uint2*>(args.fc2.y + int64_t{item.first_row + token} * kHidden + column) =
            make_uint2(low, high);
      }
    }
  }
}

// The quantised input for whoever reads it after the call: FC1 quantises its own rows. While the first sums grow.
template <typename C>
__device__ __forceinline__ void quantize_input(const Args& args) {
  constexpr int kBlocks = kHidden / kGroup;
  const float encode = __ldg(args.input.encode);
  for (int token = blockIdx.x; token < args.input.route.num_tokens; token += gridDim.x) {
    for (int i = threadIdx.x; i < kBlocks; i += 32 * C::kEpilogueWarps) {
      const int block = token * kBlocks + i;
      const quantize::Block result =
          quantize::quantize_block(__ldg(args.input.x + 2 * block), __ldg(args.input.x + 2 * block + 1), encode);
      reinterpret_cast<uint2*>(args.fc1.xq)[block] = result.codes;
      args.fc1.xs[block] = result.scale;
    }
  }
}

template <typename C>
__device__ __forceinline__ void store_units(const Args& args, Shared<C>& shared, uint32_t tmem, int warp) {
  RingPosition<C::kAccumulators> at;
  for_each_item<C>(shared, [&](const Item& item) {
    ptx::mbarrier_wait(&shared.sums_ready[at.slot], at.phase);
    ptx::tcgen05_fence_after();
    const uint32_t sums = tmem + at.slot * C::kTokens + (static_cast<uint32_t>(32 * warp) << 16);
    if (item.kind == Kind::kFc1) {
      store_fc1<C>(args, item, sums, warp);
    } else {
      store_fc2<C>(args, item, sums, warp);
    }
    ptx::tcgen05_fence_before();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.sums_stored[at.slot]);
    at.advance();
  });
}

}  // namespace cake_moe::sm100::experts
