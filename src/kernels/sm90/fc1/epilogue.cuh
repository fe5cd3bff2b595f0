// FC1's epilogue: SiTU and requantisation of one m64 tile (32 features) by a warpgroup, a few tokens at a time. A
// thread holds the up and the gate accumulators of one feature; the sixteen features of a block lie in two warps and
// meet in shared memory.
#pragma once

#include <cstdint>

#include "kernels/ptx/pin.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/fc1/activation.cuh"
#include "kernels/sm90/fc1/requantize.cuh"
#include "kernels/sm90/fc1/shared.cuh"

namespace cake_moe::sm90::fc1 {

// A pass's accumulators, scaled, by branches that whole warps take: registers have no index.
template <typename C, int kPass = 0>
__device__ __forceinline__ void select_pass(const Activation& act, const float (&acc)[C::kTokens / 2], int pass,
                                            float (&values)[C::kPassTokens / 2]) {
  constexpr int kFirst = kPass * C::kPassTokens / 2;
  if constexpr (kFirst + C::kPassTokens / 2 < C::kTokens / 2) {
    if (pass != kPass) return select_pass<C, kPass + 1>(act, acc, pass, values);
  }
#pragma unroll
  for (int j = 0; j < C::kPassTokens / 2 && kFirst + j < C::kTokens / 2; ++j) {
    values[j] = act.scaled(acc[kFirst + j]);
    ptx::pin(values[j]);  // a branch, not a choice for each register
  }
}

// SiTU of the scaled accumulators of a pass of `rows` tokens; by far most calls take no branch but the one that leaves
// out eight tokens that are not there.
template <typename C>
__device__ __forceinline__ void activate(const Activation& act, const float (&sums)[C::kPassTokens / 2], int rows,
                                         float* values) {
  bool regular = true;
  const auto activate_eight = [&](int j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float v = act(sums[j + i + 2], sums[j + i]);
      values[(2 * j + i) * C::kExchangePitch] = v;
      regular &= act.regular(v);
    }
  };
  activate_eight(0);
  if constexpr (C::kPassTokens == 16) {
    if (rows > 8) activate_eight(4);
  }
  if (regular) return;
  // Rare, so in little code: a rolled loop, whose registers move down since they have no index. What stands in for a
  // token that is not there may well be NaN.
  constexpr int kValues = C::kPassTokens / 4;
  const int column = threadIdx.x % 4 * 2;
  float gates[kValues], ups[kValues];
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const int j = 4 * (i / 2) + i % 2;
    gates[i] = sums[j + 2];
    ups[i] = sums[j];
  }
#pragma unroll 1
  for (int i = 0; i < kValues; ++i) {
    const int row = 8 * (i / 2) + i % 2;
    float& value = values[row * C::kExchangePitch];
    if (row + column < rows && !act.regular(value)) value = act.exact(gates[0], ups[0]);
#pragma unroll
    for (int k = 0; k + 1 < kValues; ++k) {
      gates[k] = gates[k + 1];
      ups[k] = ups[k + 1];
    }
  }
}

// A rolled loop, since unrolled passes would not fit the instruction cache. Two planes in turn let the next pass begin
// before every warp has read this one. `group` is the warpgroup, `subtile` counts the unit's 64 rows.
template <typename C>
__device__ __forceinline__ void store_unit(const Args& args, Shared<C>& shared, int group, int subtile,
                                           const Unit& unit, const Constants& constants,
                                           const float (&acc)[C::kTokens / 2]) {
  constexpr int kPass = C::kPassTokens;
  const Activation act(constants);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, thread = threadIdx.x % 128;
  auto& exchange = shared.exchange[group];
  if constexpr (C::kFactors > 0) {
#pragma unroll
    for (int scale = thread; scale < C::kFactors; scale += 128) {
      exchange.factors[scale] = hidden_block_factor(static_cast<uint8_t>(scale), act.encode);
    }
  }
  // Bytes, pinned: the compiler would form them anew in every pass.
  uint32_t own = sizeof(float) * (2 * (lane % 4) * C::kExchangePitch + 16 * (warp / 2) + 8 * (warp % 2) + lane / 4);
  ptx::pin(own);
  // As a quarter of a block, a thread requantises four features of one token of a pass.
  const int token = thread / 8, block = thread / 4 % 2, part = thread % 4;
  uint32_t quarter = sizeof(float) * (token * C::kExchangePitch + kGroup * block + 2 * part);
  ptx::pin(quarter);
  // Its block among all of hs.
  uint32_t target = (unit.first_row + token) * kFc2Groups + (unit.row_block * C::kTileRows + 64 * subtile) / 32 + block;
  uint32_t plane = 0;
  int pass = 0;
  const auto exchanged = [&](uint32_t bytes) {
    return reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(exchange.values[0]) + bytes);
  };
#pragma unroll 1
  for (int rows = unit.rows; rows > 0; rows -= kPass) {
    float sums[kPass / 2] = {};
    select_pass<C>(act, acc, pass++, sums);
    activate<C>(act, sums, rows, exchanged(own + plane));
    ptx::named_barrier(1 + group, 128);  // every feature of the pass is in place
    if (thread < 8 * kPass) {
      const auto factor_of = [&](uint8_t scale) {
        if constexpr (C::kFactors > 0) return exchange.factors[scale];
        return hidden_block_factor(scale, act.encode);
      };
      float v[4] = {};
      if (token < rows) {
        const float* from = exchanged(quarter + plane);  // even features, then odd ones
        v[0] = from[0], v[1] = from[kGroup / 2], v[2] = from[1], v[3] = from[kGroup / 2 + 1];
      }
      requantize_block(v, part, act.encode, factor_of, token < rows, args.hq + kGroup / 2 * target, args.hs + target);
    }
    target += kPass * kFc2Groups;
    plane ^= C::kPlaneFloats * sizeof(float);
  }
  ptx::named_barrier(1 + group, 128);  // every warp is done
  if (thread == 0) ptx::add_release(&args.tiles[unit.tile].w, 1);
}

}  // namespace cake_moe::sm90::fc1
