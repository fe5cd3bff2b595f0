// FC2's producer (weights and scales into a ring), the token tile, and the consumers' accumulation.
#pragma once

#include <cstdint>

#include "kernels/ptx/copy.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/fc2/args.h"
#include "kernels/sm90/fc2/config.h"
#include "kernels/sm90/fc2/schedule.cuh"
#include "kernels/sm90/mma.cuh"

namespace cake_moe::sm90::fc2 {

// The CTA's part of the finalise stage: of no parts, none.
struct Part {
  unsigned index = 0, count = 0;
};

template <typename C>
struct Shared {
  struct Slot {
    alignas(128) uint8_t weights[C::kWeightBytes];  // [row][192 bytes]
    uint8_t scales[C::kScaleBytes];                 // [6 atoms of 512 bytes]
  };
  uint64_t unit_arrived[C::kSlots];
  uint64_t unit_consumed[C::kSlots];
  Part part;
  int4 work[C::kSlots];  // of a slot: expert, first row, rows, unit of the tile; a unit of -1: nothing is left
  alignas(C::kHeaderBytes) uint8_t tokens[C::kTokenBytes];  // [segment][token][128 bytes], 128-byte swizzle
  Slot slots[C::kSlots];
};

// The tile's rows of hq and hs into the L2 cache, where FC1 wrote them some time ago.
__device__ __forceinline__ void prefetch_tokens(const Args& args, int first_row, int rows) {
  ptx::bulk_prefetch(args.hq + int64_t{first_row} * kFc2RowBytes, rows * kFc2RowBytes);
  const int64_t begin = int64_t{first_row} * kFc2Groups / 16 * 16;
  const int64_t end = (int64_t{first_row + rows} * kFc2Groups + 15) / 16 * 16;
  ptx::bulk_prefetch(args.hs + begin, static_cast<int>(end - begin));
}

// By one thread. A slot has arrived when its weights have and FC1 has finished its tile: FC1's CTAs all run or have
// ended when FC2's start, so that the wait for them ends. What the thread sees of them, those see who wait for the
// slot.
template <typename C>
__device__ __forceinline__ void produce(const Args& args, Shared<C>& shared) {
  const uint64_t policy = C::kWide ? ptx::policy_evict_last() : ptx::policy_evict_first();
  const Items<C::kRowBlocks> items(__ldcg(args.tile_count), gridDim.x);
  RingPosition<C::kSlots> at;
  while (true) {
    const int index = atomicAdd(args.work_counter, 1u);
    if (index >= items.count()) break;
    const Item item = items[index];
    const int4* tile = &args.tiles[item.tile];
    const int expert = __ldcg(&tile->x), first_row = __ldcg(&tile->y), rows = __ldcg(&tile->z);
    for (int unit = item.begin; unit < item.end; ++unit) {
      auto& slot = shared.slots[at.slot];
      uint64_t* arrived = &shared.unit_arrived[at.slot];
      const int64_t block = int64_t{expert} * C::kRowBlocks + unit;
      ptx::mbarrier_wait(&shared.unit_consumed[at.slot], at.phase ^ 1);
      shared.work[at.slot] = make_int4(expert, first_row, rows, unit);
      ptx::mbarrier_arrive_expect(arrived, C::kWeightBytes + C::kScaleBytes);
      ptx::bulk_copy(slot.weights, args.weights + block * C::kWeightBytes, C::kWeightBytes, arrived, policy);
      ptx::bulk_copy(slot.scales, args.scales + block * C::kScaleBytes, C::kScaleBytes, arrived, policy);
      if (unit == item.begin) {
        while (ptx::load_acquire(&tile->w) != kFc1Parts) {
        }
        prefetch_tokens(args, first_row, rows);
      }
      ptx::mbarrier_arrive(arrived);
      at.advance();
    }
  }
  ptx::mbarrier_wait(&shared.unit_consumed[at.slot], at.phase ^ 1);
  shared.work[at.slot] = make_int4(0, 0, 0, -1);
  ptx::mbarrier_arrive(&shared.unit_arrived[at.slot]);
  ptx::mbarrier_arrive(&shared.unit_arrived[at.slot]);
}

// A 16-byte piece of a token's codes -> fp16 operand. `scales` of its two blocks.
template <typename C>
__device__ __forceinline__ void store_piece(uint8_t* tokens, int token, int piece, const uint4& codes, __half2 scales) {
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

// hq, hs of the tile's rows -> fp16 operand, by all consumer threads. A warp takes 64 bytes of eight tokens at a time,
// whose 16-byte chunks lie in different banks, and requests several before it waits for the other warps to be done with
// the previous tile. Padding tokens keep what was there: they only reach accumulator columns that are never stored.
template <typename C>
__device__ __forceinline__ void load_tokens(const Args& args, Shared<C>& shared, const int4& tile) {
  constexpr int kWarps = C::kConsumerThreads / 32, kQuads = C::kPieces / 4;
  constexpr int kItems = (C::kTokens / 8 * kQuads + kWarps - 1) / kWarps;        // of a warp
  constexpr int kMost = C::kConsumers == 4 ? 2 : C::kTokens > 112 ? 3 : kItems;  // as registers allow
  constexpr int kAhead = kItems < kMost ? kItems : kMost;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const auto token_of = [lane](int item) { return item / kQuads * 8 + lane / 4; };
  const auto piece_of = [lane](int item) { return item % kQuads * 4 + lane % 4; };
#pragma unroll 1
  for (int first = warp; first < kItems * kWarps; first += kAhead * kWarps) {
    uint4 codes[kAhead];
    uint16_t scales[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int item = first + i * kWarps, token = token_of(item), piece = piece_of(item);
      if (token >= tile.z) continue;
      const int64_t row = tile.y + token;
      codes[i] = __ldcg(reinterpret_cast<const uint4*>(args.hq + row * kFc2RowBytes) + piece);
      scales[i] = __ldcg(reinterpret_cast<const uint16_t*>(args.hs + row * kFc2Groups) + piece);
    }
    if (first == warp) ptx::named_barrier(1, C::kConsumerThreads);  // nobody multiplies the previous tile any more
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int item = first + i * kWarps, token = token_of(item);
      if (token < tile.z) store_piece<C>(shared.tokens, token, piece_of(item), codes[i], shifted_scales(scales[i]));
    }
  }
  ptx::fence_async_shared();
  ptx::named_barrier(1, C::kConsumerThreads);  // the tile is complete
}

// Stored row (of a subtile of 64) that lane row r of a warp's fragment holds; its second row is 8 further. Chosen so
// that the two rows are neighbouring output columns and a warp's eight lane rows make 32 contiguous bytes of output.
__device__ __forceinline__ int lane_column(int r) { return (r & 4) | (r & 1) << 1 | (r & 2) >> 1; }
__device__ __forceinline__ int stored_row(int warp, int r) {
  const int column = lane_column(r);
  return 32 * (warp / 2) + 16 * (column % 2) + 4 * (warp % 2) + column / 2;
}

// By kN of the tile's columns.
template <typename C, int kN>
__device__ __forceinline__ void accumulate(const typename Shared<C>::Slot& slot, const uint8_t* tokens, int subtile,
                                           float (&acc)[kN / 2]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int t = lane % 4, row = 64 * subtile + stored_row(warp, lane / 4);
  const uint8_t* weights = slot.weights + row * kFc2RowBytes + t * 16;
  const uint8_t* scales =
      slot.scales + row / 128 * (128 * kFc2Groups) + t / 2 * 512 + row % 32 * 16 + row % 128 / 32 * 4 + t % 2 * 2;
  const uint32_t address = ptx::shared_address(tokens);
  const uint64_t descriptor = ptx::swizzle128_descriptor(address);
  clear(acc);
  constexpr int kLast = C::kBuffers - 1;
  uint32_t a[C::kBuffers][kSteps][4];
#pragma unroll
  for (int i = 0; i < C::kSegments / 2; ++i) {
    const uint4 low = *reinterpret_cast<const uint4*>(weights + 64 * i);
    const uint4 high = *reinterpret_cast<const uint4*>(weights + 8 * kFc2RowBytes + 64 * i);
    const __half2 low_scales = shifted_scales(*reinterpret_cast<const uint16_t*>(scales + 1024 * i));
    const __half2 high_scales = shifted_scales(*reinterpret_cast<const uint16_t*>(scales + 8 * 16 + 1024 * i));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const __half2 low_scale = half == 0 ? __low2half2(low_scales) : __high2half2(low_scales);
      const __half2 high_scale = half == 0 ? __low2half2(high_scales) : __high2half2(high_scales);
      dequantize_segment(half == 0 ? low.x : low.z, half == 0 ? low.y : low.w, low_scale, half == 0 ? high.x : high.z,
                         half == 0 ? high.y : high.w, high_scale, a[half & kLast]);
      if constexpr (C::kWarpMma) {
        multiply_segment<kN>(acc, a[half & kLast], address + (2 * i + half) * C::kSegmentBytes);
      } else {
        start_segment<kN>(acc, a[half & kLast], descriptor + (2 * i + half) * (C::kSegmentBytes >> 4));
        ptx::wgmma_wait<kLast>();
      }
    }
  }
  if constexpr (C::kWarpMma) {
    __syncwarp();
  } else {
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int j = 0; j < kN / 2; ++j) ptx::pin(acc[j]);
  }
}

}  // namespace cake_moe::sm90::fc2
