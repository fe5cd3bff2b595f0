// FC2's token tile: packed rows in global memory -> fp16 operand in shared memory, by all threads of the CTA.
#pragma once

#include <cstdint>

#include "kernels/ptx/copy.cuh"
#include "kernels/sm90/fc2/args.h"
#include "kernels/sm90/fc2/shared.cuh"
#include "kernels/sm90/mma.cuh"

namespace cake_moe::sm90::fc2 {

// A token tile, and the factor of its sums. The tiles' table is read a tile ahead, a word a lane: a register, not four.
struct Tile {
  int4 rows;  // expert, first row, rows, 0
  float factor;

  __device__ static __forceinline__ int load_word(const Args& args, int tile) {
    return __ldcg(reinterpret_cast<const int*>(args.tiles + tile) + threadIdx.x % 4);
  }
  __device__ static __forceinline__ int4 rows_of(int word) {
    return make_int4(__shfl_sync(~0u, word, 0), __shfl_sync(~0u, word, 1), __shfl_sync(~0u, word, 2), 0);
  }
  __device__ __forceinline__ Tile(const Args& args, int word)
      : rows(rows_of(word)), factor(__ldg(&args.alpha[rows.x]) * kUnshift) {}
};

// Brings a tile's packed rows into L2. By one thread.
__device__ __forceinline__ void prefetch_tokens(const Args& args, const int4& tile) {
  ptx::bulk_prefetch(args.hq + int64_t{tile.y} * kFc2RowBytes, tile.z * kFc2RowBytes);
  const int64_t begin = int64_t{tile.y} * kFc2Groups / 16 * 16, end = int64_t{tile.y + tile.z} * kFc2Groups;
  ptx::bulk_prefetch(args.hs + begin, static_cast<int>(end - begin + 15) / 16 * 16);
}

// A thread's share of a tile, 16-byte pieces of packed rows. A warp takes 64 bytes of eight tokens at a time, whose
// 16-byte chunks lie in different banks.
template <typename C>
class TokenPieces {
 public:
  __device__ __forceinline__ TokenPieces(const Args& args, const int4& tile) : thread_(threadIdx.x) {
    ptx::pin(thread_);  // else every address of every item is computed before the first tile, and spilled
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      codes_[i] = {};
      scales_[i] = 0;
      if (token(i) >= tile.z) continue;
      const int64_t row = tile.y + token(i);
      codes_[i] = __ldcg(reinterpret_cast<const uint4*>(args.hq + row * kFc2RowBytes) + piece(i));
      scales_[i] = __ldcg(reinterpret_cast<const uint16_t*>(args.hs + row * kFc2Groups) + piece(i));
    }
  }

  // Padding tokens keep what was there: they only reach accumulator columns that are never stored.
  __device__ __forceinline__ void dequantize(uint8_t* tokens, const int4& tile) const {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if (token(i) < tile.z) store_piece(tokens, token(i), piece(i), codes_[i], shifted_scales(scales_[i]));
    }
  }

 private:
  static constexpr int kWarps = C::kThreads / 32, kQuads = C::kPieces / 4;
  static constexpr int kItems = (C::kTokens / 8 * kQuads + kWarps - 1) / kWarps;

  __device__ __forceinline__ int item(int i) const { return thread_ / 32 + i * kWarps; }
  __device__ __forceinline__ int token(int i) const { return item(i) / kQuads * 8 + thread_ % 32 / 4; }
  __device__ __forceinline__ int piece(int i) const { return item(i) % kQuads * 4 + thread_ % 4; }

  // `scales` of the piece's two blocks.
  __device__ static __forceinline__ void store_piece(uint8_t* tokens, int token, int piece, const uint4& codes,
                                                     __half2 scales) {
    const uint32_t words[] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t pairs[4];
      dequantize_word(words[w], w < 2 ? __low2half2(scales) : __high2half2(scales), pairs);
      uint8_t* segment = tokens + (2 * (piece / 4) + w / 2) * C::kSegmentBytes;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int byte = segment_byte(w % 2, k / 2, k % 2, piece % 4);
        *reinterpret_cast<uint32_t*>(segment + swizzled_byte(token, byte / 16) + byte % 16) = pairs[k];
      }
    }
  }

  uint32_t thread_;
  uint4 codes_[kItems];
  uint16_t scales_[kItems];
};

}  // namespace cake_moe::sm90::fc2
