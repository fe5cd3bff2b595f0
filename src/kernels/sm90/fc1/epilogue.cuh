// FC1's epilogue: SiTU and requantisation of one m64 tile (32 features) by a warpgroup, a few tokens at a time. A
// thread holds the up and the gate accumulators of one feature; the sixteen features of a block lie in two warps and
// meet in shared memory.
#pragma once

#include <cstdint>

#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/fc1/activation.cuh"
#include "kernels/sm90/fc1/shared.cuh"
#include "numerics/nvfp4.h"

namespace cake_moe::sm90::fc1 {

// SiTU of a thread's first accumulators, which are those of a pass; by far most calls take no branch.
template <typename C>
__device__ __forceinline__ void activate(const Activation& act, const float (&acc)[C::kTokens / 2], float* values) {
  constexpr int kValues = C::kPassTokens / 4;
  float results[kValues];
  bool regular = act.beta.regular() && act.linear_beta.regular();
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const int j = 4 * (i / 2) + i % 2;
    results[i] = act(acc[j + 2], acc[j], &regular);
  }
#pragma unroll
  for (int i = 0; i < kValues; ++i) values[(8 * (i / 2) + i % 2) * C::kExchangePitch] = results[i];
  if (regular) return;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const int j = 4 * (i / 2) + i % 2;
    values[(8 * (i / 2) + i % 2) * C::kExchangePitch] = act.exact(acc[j + 2], acc[j]);
  }
}

// Four lanes requantise a block; lane `part` encodes `v`, features 4 * part .. 4 * part + 3. factor_of(scale) is
// hidden_block_factor. Called by whole warps.
template <typename FactorOf>
__device__ __forceinline__ void requantize_block(const float (&v)[4], int part, float encode, const FactorOf& factor_of,
                                                 bool store, uint8_t* codes, uint8_t* scale) {
  float amax =
      max_magnitude(max_magnitude(abs_bits(v[0]), abs_bits(v[1])), max_magnitude(abs_bits(v[2]), abs_bits(v[3])));
  amax = max_magnitude(amax, __shfl_xor_sync(~0u, amax, 1));
  amax = max_magnitude(amax, __shfl_xor_sync(~0u, amax, 2));
  const bool nan = is_nan(amax);
  const uint8_t block_scale = hidden_block_scale(amax, encode);
  const float factor = factor_of(block_scale);
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) word |= encode_e2m1(mul_rn(v[i], factor)) << 4 * i;
  if (!store) return;
  reinterpret_cast<uint16_t*>(codes)[part] = static_cast<uint16_t>(nan ? 0 : word);
  if (part == 0) *scale = nan ? kE4m3Nan : block_scale;
}

__device__ __forceinline__ void requantize_block(const float (&v)[4], int part, float encode, bool store,
                                                 uint8_t* codes, uint8_t* scale) {
  const auto factor_of = [&](uint8_t block_scale) { return hidden_block_factor(block_scale, encode); };
  requantize_block(v, part, encode, factor_of, store, codes, scale);
}

// Requantises the 32 features of a pass; two planes in turn let the next pass begin before every warp has read this
// one.
template <typename C>
__device__ __forceinline__ void store_pass(const Args& args, const float* values, const float* factors, float encode,
                                           int first_block, int64_t first_row, int rows) {
  const int thread = threadIdx.x % 128;
  if (thread >= 8 * C::kPassTokens) return;
  const int token = thread / 8, block = thread / 4 % 2, part = thread % 4;
  const float* from = values + token * C::kExchangePitch + kGroup * block;  // even features, then odd ones
  const float2 even = reinterpret_cast<const float2*>(from)[part];
  const float2 odd = reinterpret_cast<const float2*>(from + kGroup / 2)[part];
  const int64_t row = first_row + token;
  requantize_block(
      {even.x, odd.x, even.y, odd.y}, part, encode, [&](uint8_t scale) { return factors[scale]; }, token < rows,
      args.hq + row * kFc2RowBytes + 8 * (first_block + block), args.hs + row * kFc2Groups + first_block + block);
}

// Consumes the accumulators: a rolled loop that moves them down by a pass at a time, since unrolled passes would not
// fit the instruction cache and registers have no index.
template <typename C>
__device__ __forceinline__ void store_unit(const Args& args, Shared<C>& shared, int group, int subtile,
                                           const Unit& unit, float (&acc)[C::kTokens / 2]) {
  constexpr int kPass = C::kPassTokens, kPassValues = kPass / 2;
  const Activation act(Constants(args, unit.expert));
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, thread = threadIdx.x % 128;
  auto& exchange = shared.exchange[group];
  ptx::named_barrier(1 + group, 128);  // every warp is done with the previous unit
#pragma unroll
  for (int scale = thread; scale < 256; scale += 128) {
    exchange.factors[scale] = hidden_block_factor(static_cast<uint8_t>(scale), act.encode);
  }
  const int own = 2 * (lane % 4) * C::kExchangePitch + 16 * (warp / 2) + 8 * (warp % 2) + lane / 4;
  const int first_block = (unit.row_block * C::kTileRows + 64 * subtile) / 32;
  int plane = 0;
#pragma unroll 1
  for (int token = 0; token < unit.rows; token += kPass) {
    float* values = exchange.values[plane];
    activate<C>(act, acc, values + own);
    ptx::named_barrier(1 + group, 128);  // every feature of the pass is in place
    store_pass<C>(args, values, exchange.factors, act.encode, first_block, unit.first_row + token, unit.rows - token);
    plane ^= 1;
#pragma unroll
    for (int j = 0; j + kPassValues < C::kTokens / 2; ++j) acc[j] = acc[j + kPassValues];
  }
}

}  // namespace cake_moe::sm90::fc1
