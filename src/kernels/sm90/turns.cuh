// Warpgroups that multiply in turn: while one feeds the tensor cores out of its registers, the others dequantise. Left
// to themselves they run in phase, and the times of both add up.
#pragma once

#include "kernels/ptx/sync.cuh"

namespace cake_moe::sm90 {

// Named barriers kFirstBarrier + group: a group waits at its own until the group before it has arrived there.
template <int kGroups, int kFirstBarrier>
class Turns {
 public:
  // The first turn is group 0's.
  __device__ __forceinline__ explicit Turns(int group) : group_(group) {
    if (group == kGroups - 1) pass();
  }
  __device__ __forceinline__ void take() const { ptx::named_barrier(kFirstBarrier + group_, kThreads); }
  __device__ __forceinline__ void pass() const {
    ptx::named_barrier_arrive(kFirstBarrier + (group_ + 1) % kGroups, kThreads);
  }
  // After the last turn, which every group takes equally often: no barrier is left with an arrival.
  __device__ __forceinline__ void end() const {
    if (group_ == 0) take();
  }

 private:
  static constexpr int kThreads = 2 * 128;
  int group_;
};

// For groups that multiply whenever they can.
struct NoTurns {
  __device__ __forceinline__ explicit NoTurns(int = 0) {}
  __device__ __forceinline__ void take() const {}
  __device__ __forceinline__ void pass() const {}
  __device__ __forceinline__ void end() const {}
};

}  // namespace cake_moe::sm90
