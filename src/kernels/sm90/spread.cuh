// What a warp requests long before its use, in one register.
#pragma once

namespace cake_moe::sm90 {

// Four values of a warp; a lane holds the one of index lane % 4.
template <typename T>
class Spread {
 public:
  Spread() = default;
  __device__ __forceinline__ explicit Spread(T own) : own_(own) {}
  // By whole warps.
  __device__ __forceinline__ T operator[](int index) const { return __shfl_sync(~0u, own_, index); }

 private:
  T own_;
};

}  // namespace cake_moe::sm90
