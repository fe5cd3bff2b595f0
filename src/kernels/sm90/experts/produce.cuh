// The two producing warps: weights and scales into the ring, and the tokens of both GEMMs.
#pragma once

#include <cstdint>

#include "kernels/ptx/copy.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/experts/route.cuh"
#include "kernels/sm90/experts/tokens.cuh"

namespace cake_moe::sm90::experts {

struct WeightPolicies {
  uint64_t weights = ptx::policy_evict_first();
  uint64_t scales = ptx::policy_evict_last();  // neighbouring CTAs may share a block's scales
};

__device__ __forceinline__ void copy_fc1_stage(const Args& args, const CUtensorMap& map, Fc1Slot& slot,
                                               uint64_t* arrived, const Item& item, int expert, int group, int stage,
                                               const WeightPolicies& policies) {
  const int first_block = item.unit / 4, blocks = (item.unit + item.units - 1) / 4 - first_block + 1;
  const int first_k = group * kSliceK + stage * kStageK;
  const int row = expert * kFc1Rows + item.unit * kFc1UnitRows;
  ptx::mbarrier_arrive_expect(arrived, item.units * kFc1BoxBytes + blocks * kFc1ScaleBytes);
  for (int u = 0; u < item.units; ++u) {
    ptx::tensor_copy_2d(slot.weights + u * kFc1BoxBytes, &map, first_k / 2, row + u * kFc1UnitRows, arrived,
                        policies.weights);
  }
  const uint8_t* scales =
      args.fc1.scales + int64_t{expert} * (kFc1Rows * kFc1Groups) + first_k / kStageK * kFc1ScaleBytes;
  for (int b = 0; b < blocks; ++b) {
    ptx::bulk_copy(slot.scales + b * kFc1ScaleBytes, scales + (first_block + b) * (128 * kFc1Groups), kFc1ScaleBytes,
                   arrived, policies.scales);
  }
}

__device__ __forceinline__ void copy_fc2_units(const Args& args, Fc2Slot& slot, uint64_t* arrived, const Item& item,
                                               int expert, const WeightPolicies& policies) {
  const int in_block = item.unit % kFc2SlotUnits, bytes = item.units * kFc2UnitBytes;
  ptx::mbarrier_arrive_expect(arrived, bytes + kFc2ScaleBytes);
  ptx::bulk_copy(slot.weights + in_block * kFc2UnitBytes,
                 args.fc2.weights + (int64_t{expert} * kFc2Units + item.unit) * kFc2UnitBytes, bytes, arrived,
                 policies.weights);
  ptx::bulk_copy(slot.scales,
                 args.fc2.scales + (int64_t{expert} * kFc2Units + item.unit) / kFc2SlotUnits * kFc2ScaleBytes,
                 kFc2ScaleBytes, arrived, policies.scales);
}

// Weights and scales of the positions begin..end-1 of the sequence, by one thread.
__device__ __forceinline__ void stream_weights(const Args& args, const CUtensorMap& map, Shared& shared, uint32_t begin,
                                               uint32_t end) {
  const WeightPolicies policies;
  uint32_t position = 0;
  const auto acquire = [&](uint32_t at) {
    const RingSlot ring(at);
    ptx::mbarrier_wait(&shared.slot_consumed[ring.slot], ring.phase ^ 1);
    return ring.slot;
  };
  for_each_fc1_item(Share(shared.tile_count, kFc1Units), [&](const Item& item) {
    const int expert = Tile(shared.tiles[item.tile]).expert();
    for (int i = 0; i < kFc1ItemSlots; ++i, ++position) {
      if (position < begin || position >= end) continue;
      const int slot = acquire(position);
      copy_fc1_stage(args, map, shared.slots[slot].fc1, &shared.slot_arrived[slot], item, expert, i % kGroups,
                     i / kGroups, policies);
    }
  });
  for_each_fc2_slot(Share(shared.tile_count, kFc2Units), [&](const Item& item) {
    if (position >= begin && position < end) {
      const int slot = acquire(position);
      ptx::mbarrier_arrive(&shared.slot_arrived[slot]);  // in the token warp's place: FC2's tokens are not in the ring
      copy_fc2_units(args, shared.slots[slot].fc2, &shared.slot_arrived[slot], item,
                     Tile(shared.tiles[item.tile]).expert(), policies);
    }
    ++position;
  });
}

__device__ __forceinline__ void bring_fc1_tokens(const Args& args, Shared& shared) {
  const int lane = threadIdx.x % 32;
  const uint64_t policy = ptx::policy_evict_last();
  uint32_t position = 0;
  int current = -1;
  const uint8_t* token = nullptr;
  for_each_fc1_item(Share(shared.tile_count, kFc1Units), [&](const Item& item) {
    const Tile tile(shared.tiles[item.tile]);
    if (item.tile != current) {
      current = item.tile;
      find_routes(shared, tile, args.route.num_tokens * kTopK);
      if (lane < tile.rows()) {
        const int route = shared.token_routes[lane], row = tile.first_row() + lane;
        token = args.fc1.x_half + int64_t{route / kTopK} * (kHidden * 2);
        if (item.unit == 0) {
          args.route.row_route[row] = route;
          args.route.route_row[route] = row;
        }
      }
    }
    for (int i = 0; i < kFc1ItemSlots; ++i, ++position) {
      const RingSlot ring(position);
      uint64_t* arrived = &shared.slot_arrived[ring.slot];
      ptx::mbarrier_wait(&shared.slot_consumed[ring.slot], ring.phase ^ 1);
      if (lane == 0) ptx::mbarrier_arrive_expect(arrived, tile.rows() * kFc1TokenBytes);
      __syncwarp();
      if (lane < tile.rows()) {
        ptx::bulk_copy(shared.slots[ring.slot].fc1.tokens + lane * kFc1TokenPitch,
                       token + (i % kGroups * kSliceK + i / kGroups * kStageK) * 2, kFc1TokenBytes, arrived, policy);
      }
    }
  });
}

// hq, hs of a tile's rows -> fp16 in lane order.
__device__ __forceinline__ void load_hidden(const Args& args, uint8_t* hidden, const Tile& tile) {
  for (int item = threadIdx.x % 32; item < tile.rows() * kFc2Pieces; item += 32) {
    const int token = item / kFc2Pieces, piece = item % kFc2Pieces;
    const int row = tile.first_row() + token;
    const uint4 codes = __ldcg(reinterpret_cast<const uint4*>(args.fc2.hq + row * kFc2RowBytes) + piece);
    const __half2 scales =
        shifted_scales(__ldcg(reinterpret_cast<const uint16_t*>(args.fc2.hs + row * kFc2Groups) + piece));
    uint8_t* to = hidden + token * kFc2TokenPitch;
    store_chunk(reinterpret_cast<uint4*>(to + fc2_chunk(2 * piece) * kChunkBytes), make_uint2(codes.x, codes.y),
                __low2half2(scales));
    store_chunk(reinterpret_cast<uint4*>(to + fc2_chunk(2 * piece + 1) * kChunkBytes), make_uint2(codes.z, codes.w),
                __high2half2(scales));
  }
}

// The tiles of FC2, each once all of its FC1 units are finished, wherever they were computed.
__device__ __forceinline__ void bring_fc2_tokens(const Args& args, Shared& shared) {
  const Share share(shared.tile_count, kFc2Units);
  if (share.begin == share.end) return;
  const int first = share.begin / kFc2Units, last = (share.end - 1) / kFc2Units;
  for (int index = first; index <= last; ++index) {
    const int buffer = (index - first) % kHiddenTiles, round = (index - first) / kHiddenTiles;
    ptx::mbarrier_wait(&shared.hidden_consumed[buffer], round % 2 ^ 1);
    while (ptx::load_acquire(&args.route.tiles[index].w) != kFc1Units) {}
    load_hidden(args, shared.hidden[buffer], Tile(shared.tiles[index]));
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.hidden_arrived[buffer]);
  }
}

}  // namespace cake_moe::sm90::experts
