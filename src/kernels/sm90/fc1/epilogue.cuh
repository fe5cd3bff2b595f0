// FC1's epilogue: SiTU and requantisation of one m64 tile (32 features) by a warpgroup, a few tokens at a time. A
// thread holds the up and the gate accumulators of one feature; the sixteen features of a block lie in two warps and
// meet in shared memory.
#pragma once

#include <cstdint>

#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/fc1/activation.cuh"
#include "kernels/sm90/fc1/mainloop.cuh"
#include "numerics/nvfp4.h"

namespace cake_moe::sm90::fc1 {

// up[i] = SiTU of gate[i], up[i] for the thread's own values of a pass; by far most calls take no branch.
template <typename C>
__device__ __forceinline__ void activate(const Activation& act, float* up, const float* gate) {
  constexpr int kValues = C::kPassTokens / 4, kTogether = kValues < 4 ? kValues : 4;
  const auto at = [](int i) { return (8 * (i / 2) + i % 2) * C::kExchangePitch; };
#pragma unroll 1
  for (int first = 0; first < kValues; first += kTogether) {
    float results[kTogether];
    bool regular = act.beta.regular() && act.linear_beta.regular();
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      results[i] = act(gate[at(first + i)], up[at(first + i)], &regular);
    }
    if (regular) {
#pragma unroll
      for (int i = 0; i < kTogether; ++i) up[at(first + i)] = results[i];
    } else {
#pragma unroll 1
      for (int i = first; i < first + kTogether; ++i) {
        up[at(i)] = situ(gate[at(i)] * kUnshift, up[at(i)] * kUnshift, act.alpha, act.beta.d, act.linear_beta.d);
      }
    }
  }
}

// Four lanes requantise a block; lane `part` encodes `v`, features 4 * part .. 4 * part + 3. Called by whole warps.
__device__ __forceinline__ void requantize_block(const float (&v)[4], int part, float encode, bool store,
                                                 uint8_t* codes, uint8_t* scale) {
  float amax =
      max_magnitude(max_magnitude(abs_bits(v[0]), abs_bits(v[1])), max_magnitude(abs_bits(v[2]), abs_bits(v[3])));
  amax = max_magnitude(amax, __shfl_xor_sync(~0u, amax, 1));
  amax = max_magnitude(amax, __shfl_xor_sync(~0u, amax, 2));
  const bool nan = is_nan(amax);
  const uint8_t block_scale = hidden_block_scale(amax, encode);
  const float factor = hidden_block_factor(block_scale, encode);
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) word |= encode_e2m1(mul_rn(v[i], factor)) << 4 * i;
  if (!store) return;
  reinterpret_cast<uint16_t*>(codes)[part] = static_cast<uint16_t>(nan ? 0 : word);
  if (part == 0) *scale = nan ? kE4m3Nan : block_scale;
}

// A thread's accumulators of one pass over one subtile.
template <typename C>
__device__ __forceinline__ void exchange_pass(float* up, float* gate, int pass, const float (&acc)[C::kTokens / 2]) {
#pragma unroll
  for (int p = 0; p < C::kPasses; ++p) {
    if (p != pass) continue;
#pragma unroll
    for (int i = 0; i < C::kPassTokens / 4; ++i) {
      const int at = (8 * (i / 2) + i % 2) * C::kExchangePitch, j = p * C::kPassTokens / 2 + 4 * (i / 2) + i % 2;
      up[at] = acc[j];
      gate[at] = acc[j + 2];
    }
  }
}

// The passes are a rolled loop: unrolled, they would not fit the instruction cache.
template <typename C>
__device__ __forceinline__ void store_unit(const Args& args, Shared<C>& shared, int group, const Unit& unit,
                                           const float (&acc)[C::kSubtiles][C::kTokens / 2]) {
  constexpr int kPass = C::kPassTokens;
  const Activation act(Constants(args, unit.expert));
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, thread = threadIdx.x % 128;
  float* up = shared.exchange[group][0];
  float* gate = shared.exchange[group][1];
  const int own = 2 * (lane % 4) * C::kExchangePitch + 16 * (warp / 2) + 8 * (warp % 2) + lane / 4;
  const int passes = (unit.rows + kPass - 1) / kPass;
#pragma unroll 1
  for (int step = 0; step < C::kSubtiles * passes; ++step) {
    const int m = step / passes, pass = step % passes;
#pragma unroll
    for (int s = 0; s < C::kSubtiles; ++s) {
      if (s == m) exchange_pass<C>(up + own, gate + own, pass, acc[s]);
    }
    activate<C>(act, up + own, gate + own);
    ptx::named_barrier(1 + group, 128);  // every feature of the pass is in place
    const int first_block = (unit.row_block * C::kTileRows + 64 * (C::kSubtiles * group + m)) / 32;
#pragma unroll
    for (int item = thread; item < kPass * 8; item += 128) {
      const int in_pass = item / 8, block = item / 4 % 2, token = pass * kPass + in_pass;
      const int64_t row = unit.first_row + token;
      const float* values = up + in_pass * C::kExchangePitch + 16 * block;  // even features, then odd ones
      const float2 even = reinterpret_cast<const float2*>(values)[item % 4];
      const float2 odd = reinterpret_cast<const float2*>(values + kGroup / 2)[item % 4];
      requantize_block({even.x, odd.x, even.y, odd.y}, item % 4, act.encode, token < unit.rows,
                       args.hq + row * kFc2RowBytes + 8 * (first_block + block),
                       args.hs + row * kFc2Groups + first_block + block);
    }
    ptx::named_barrier(1 + group, 128);  // the exchange may be overwritten
  }
}

}  // namespace cake_moe::sm90::fc1
