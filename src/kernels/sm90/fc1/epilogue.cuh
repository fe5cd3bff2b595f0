// FC1's epilogue: SiTU and requantisation of one m64 tile (32 features) by a warpgroup, a few tokens at a time. A
// thread holds the up and the gate accumulators of one feature; the sixteen features of a block lie in two warps and
// meet in shared memory.
#pragma once

#include <cstdint>

#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/fc1/activation.cuh"
#include "kernels/sm90/fc1/requantize.cuh"
#include "kernels/sm90/fc1/shared.cuh"

namespace cake_moe::sm90::fc1 {

// SiTU of a thread's first accumulators, which are those of a pass of `rows` tokens; by far most calls take no branch
// but the one that leaves out eight tokens that are not there.
template <typename C>
__device__ __forceinline__ void activate(const Activation& act, const float (&acc)[C::kPassTokens / 2], int rows,
                                         float* values) {
  bool regular = act.beta.regular() && act.linear_beta.regular();
#pragma unroll
  for (int j = 0; j < C::kPassTokens / 2; j += 4) {
    if (2 * j >= rows) break;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      values[(2 * j + i) * C::kExchangePitch] = act(acc[j + i + 2], acc[j + i], &regular);
    }
  }
  if (regular) return;
  // Rare, so in little code: a rolled loop, whose registers move down since they have no index.
  constexpr int kValues = C::kPassTokens / 4;
  float gates[kValues], ups[kValues];
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const int j = 4 * (i / 2) + i % 2;
    gates[i] = acc[j + 2];
    ups[i] = acc[j];
  }
#pragma unroll 1
  for (int i = 0; i < kValues; ++i) {
    values[(8 * (i / 2) + i % 2) * C::kExchangePitch] = act.exact(gates[0], ups[0]);
#pragma unroll
    for (int k = 0; k + 1 < kValues; ++k) {
      gates[k] = gates[k + 1];
      ups[k] = ups[k + 1];
    }
  }
}

// One pass over a unit. Two planes in turn let the next one begin before every warp has read this one.
template <typename C>
__device__ __forceinline__ void store_pass(const Args& args, typename Shared<C>::Exchange& exchange, int group,
                                           const PassState& state, int pass, const float (&acc)[C::kPassTokens / 2]) {
  constexpr int kPass = C::kPassTokens;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, thread = threadIdx.x % 128;
  const int rows = state.rows - pass * kPass;
  float* plane = exchange.values[pass % 2];
  activate<C>(state.act, acc, rows,
              plane + 2 * (lane % 4) * C::kExchangePitch + 16 * (warp / 2) + 8 * (warp % 2) + lane / 4);
  ptx::named_barrier(1 + group, 128);  // every feature of the pass is in place
  if (thread >= 8 * kPass) return;
  // As a quarter of a block, a thread requantises four features of one token.
  const int token = thread / 8, block = thread / 4 % 2, part = thread % 4;
  const auto factor_of = [&](uint8_t scale) { return exchange.factors[scale]; };
  float v[4] = {};
  if (token < rows) {
    const float* from = plane + token * C::kExchangePitch + kGroup * block + 2 * part;  // even features, then odd ones
    v[0] = from[0], v[1] = from[kGroup / 2], v[2] = from[1], v[3] = from[kGroup / 2 + 1];
  }
  const int target = state.block + (pass * kPass + token) * kFc2Groups + block;
  requantize_block(v, part, state.act.encode, factor_of, token < rows, args.hq + kGroup / 2 * target, args.hs + target);
}

// Passes over a warpgroup's last unit that take place in the mainloop of the next.
template <typename C>
class DeferredPasses {
 public:
  __device__ DeferredPasses(const Args& args, Shared<C>& shared, int group)
      : args_(args), shared_(shared), group_(group) {}

  // Takes the first sums of a unit, after every pass over the last one.
  __device__ __forceinline__ void put(const PassState& state, const float (&acc)[C::kTokens / 2]) {
    auto& deferred = shared_.deferred[group_];
    const int thread = threadIdx.x % 128;
    if (thread == 0) deferred.state = state;
#pragma unroll
    for (int n = 0; n < C::kDeferred / 8; ++n) {
      deferred.sums[n][thread] = make_float4(acc[4 * n], acc[4 * n + 1], acc[4 * n + 2], acc[4 * n + 3]);
    }
    count_ = (min(state.rows, C::kDeferred) + C::kPassTokens - 1) / C::kPassTokens;
    next_ = 0;
  }
  // The warpgroups' passes lie apart, so that one computes while the others multiply.
  __device__ __forceinline__ void after_stage(int stage) {
    if (next_ < count_ && stage >= (C::kConsumers * next_ + group_) * C::kStages / (C::kConsumers * C::kDeferredPasses))
      run();
  }
  __device__ __forceinline__ void finish() {
#pragma unroll 1
    while (next_ < count_) run();
  }

 private:
  __device__ __forceinline__ void run() {
    const auto& deferred = shared_.deferred[group_];
    if (next_ == 0) ptx::named_barrier(1 + group_, 128);  // the state, and the plane of an earlier pass
    float acc[C::kPassTokens / 2];
#pragma unroll
    for (int n = 0; n < C::kPassTokens / 8; ++n) {
      const float4 four = deferred.sums[C::kPassTokens / 8 * next_ + n][threadIdx.x % 128];
      acc[4 * n] = four.x, acc[4 * n + 1] = four.y, acc[4 * n + 2] = four.z, acc[4 * n + 3] = four.w;
    }
    store_pass<C>(args_, shared_.exchange[group_], group_, deferred.state, next_++, acc);
  }

  const Args& args_;
  Shared<C>& shared_;
  int group_, next_ = 0, count_ = 0;
};

// Consumes the accumulators: a rolled loop that moves them down by a pass at a time, since unrolled passes would not
// fit the instruction cache and registers have no index.
template <typename C>
__device__ __forceinline__ void store_unit(const Args& args, Shared<C>& shared, int group, int subtile,
                                           const Unit& unit, const Constants& constants,
                                           DeferredPasses<C>& deferred_passes, const float (&acc)[C::kTokens / 2]) {
  constexpr int kPassValues = C::kPassTokens / 2, kTaken = C::kDeferred / 2, kLeft = C::kTokens / 2 - kTaken;
  const PassState state = {
      .act = Activation(constants),
      .block = unit.first_row * kFc2Groups + (unit.row_block * C::kTileRows + 64 * subtile) / 32,
      .rows = unit.rows,
  };
  auto& exchange = shared.exchange[group];
  ptx::named_barrier(1 + group, 128);  // every warp is done with the previous unit
#pragma unroll
  for (int scale = threadIdx.x % 128; scale < 256; scale += 128) {
    exchange.factors[scale] = hidden_block_factor(static_cast<uint8_t>(scale), state.act.encode);
  }
  if constexpr (C::kDeferred > 0) deferred_passes.put(state, acc);
  if constexpr (kLeft > 0) {
    float left[kLeft];
#pragma unroll
    for (int j = 0; j < kLeft; ++j) left[j] = acc[kTaken + j];
#pragma unroll 1
    for (int pass = C::kDeferredPasses; pass * C::kPassTokens < unit.rows; ++pass) {
      store_pass<C>(args, exchange, group, state, pass, reinterpret_cast<const float (&)[kPassValues]>(left));
#pragma unroll
      for (int j = 0; j + kPassValues < kLeft; ++j) left[j] = left[j + kPassValues];
    }
  }
}

}  // namespace cake_moe::sm90::fc1
