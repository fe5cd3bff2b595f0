// The producing warps: weights, scales and FC1's tokens into the rings, FC2's tokens beside them.
#pragma once

#include <cstdint>

#include "kernels/ptx/copy.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/experts/route.cuh"
#include "kernels/sm90/experts/shared.cuh"

namespace cake_moe::sm90::experts {

struct WeightPolicies {
  uint64_t weights = ptx::policy_evict_first();
  uint64_t scales = ptx::policy_evict_last();  // neighbouring CTAs may share a block's scales
};

// FC1's weights in boxes of one unit and of a whole item.
struct WeightMaps {
  CUtensorMap unit, item;
};

__device__ __forceinline__ void copy_fc1_weights(const Args& args, const WeightMaps& maps, Fc1Slot& slot,
                                                 uint64_t* arrived, const Item& item, const Tile& tile, int first_k,
                                                 const WeightPolicies& policies) {
  const int first_block = item.unit / 4, blocks = (item.unit + item.units - 1) / 4 - first_block + 1;
  const int row = tile.expert() * kFc1Rows + item.unit * kFc1UnitRows;
  ptx::mbarrier_arrive_expect(arrived,
                              item.units * kFc1BoxBytes + blocks * kFc1ScaleBytes + tile.rows() * kStageTokenBytes);
  if (item.units == kFc1ItemUnits) {
    ptx::tensor_copy_2d(slot.weights, &maps.item, first_k / 2, row, arrived, policies.weights);
  } else {
    for (int u = 0; u < item.units; ++u) {
      ptx::tensor_copy_2d(slot.weights + u * kFc1BoxBytes, &maps.unit, first_k / 2, row + u * kFc1UnitRows, arrived,
                          policies.weights);
    }
  }
  const uint8_t* scales = args.fc1.scales + int64_t{tile.expert()} * (kFc1Rows * kFc1Groups) +
                          first_block * (128 * kFc1Groups) + first_k / kStageK * kFc1ScaleBytes;
  ptx::bulk_copy(slot.scales, scales, kFc1ScaleBytes, arrived, policies.scales);
  if (blocks > 1) {
    ptx::bulk_copy(slot.scales + kFc1ScaleBytes, scales + 128 * kFc1Groups, kFc1ScaleBytes, arrived, policies.scales);
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

// Lane i's row of a tile: where its token's chunks are. The CTA with the tile's first unit records the routes.
__device__ __forceinline__ const Chunk* find_token(const Args& args, Shared& shared, const Item& item, const Tile& tile,
                                                   int group) {
  const int lane = threadIdx.x % 32;
  int32_t (&routes)[kTokens] = shared.token_routes[group];
  route::find_routes(shared.ids, tile, args.route.num_tokens * kTopK, routes);
  if (lane >= tile.rows()) return nullptr;
  const int route = routes[lane], row = tile.first_row() + lane;
  if (group == 0 && item.unit == 0) {
    args.route.row_route[row] = route;
    args.route.route_row[route] = row;
  }
  return args.quantize.chunks + route / kTopK * kFc1Chunks;
}

// Positions begin..end-1 of the group's sequence: weights, or tokens, or both. By one warp.
__device__ __forceinline__ void fill_ring(const Args& args, const WeightMaps& maps, Shared& shared, int group,
                                          uint32_t begin, uint32_t end, bool weights, bool tokens) {
  const int lane = threadIdx.x % 32;
  const WeightPolicies policies;
  uint32_t position = 0;
  int current = -1;
  const Chunk* token = nullptr;
  const bool more = for_each_fc1_item(shared.fc1, [&](const Item& item) {
    if (position + kStages <= begin) {
      position += kStages;
      return true;
    }
    const Tile tile(shared.tiles[item.tile]);
    if (tokens && item.tile != current) {
      current = item.tile;
      token = find_token(args, shared, item, tile, group);
    }
    for (int stage = 0; stage < kStages; ++stage, ++position) {
      if (position == end) return false;
      if (position < begin) continue;
      const RingSlot ring(position);
      Fc1Slot& slot = shared.slots[group][ring.slot].fc1;
      uint64_t* arrived = &shared.slot_arrived[group][ring.slot];
      if (weights) {
        ptx::mbarrier_wait(&shared.slot_consumed[group][ring.slot], ring.phase ^ 1);
        if (lane == 0) {
          copy_fc1_weights(args, maps, slot, arrived, item, tile, group * kSliceK + stage * kStageK, policies);
        }
        __syncwarp();
      }
      if (tokens && lane < tile.rows()) {
        ptx::bulk_copy(slot.tokens[lane], token + (group * kStages + stage) * kStageChunks, kStageTokenBytes, arrived,
                       policies.scales);
      }
    }
    return true;
  });
  if (!more || !weights) return;
  for_each_fc2_slot(shared.fc2, group, [&](const Item& item) {
    if (position == end) return false;
    if (position >= begin) {
      const RingSlot ring(position);
      ptx::mbarrier_wait(&shared.slot_consumed[group][ring.slot], ring.phase ^ 1);
      if (lane == 0) {
        copy_fc2_units(args, shared.slots[group][ring.slot].fc2, &shared.slot_arrived[group][ring.slot], item,
                       Tile(shared.tiles[item.tile]).expert(), policies);
      }
      __syncwarp();
    }
    ++position;
    return true;
  });
}

// A small share of FC2's weights, ahead of the ring: the memory would idle while FC1 computes. By one thread.
__device__ __forceinline__ void prefetch_fc2(const Args& args, const Shared& shared) {
  const Share share = shared.fc2;
  if ((share.end - share.begin) * kFc2UnitBytes > kPrefetchBytes) return;
  for (int at = share.begin; at < share.end; ++at) {
    const int expert = Tile(shared.tiles[at / kFc2Units]).expert();
    ptx::bulk_prefetch(args.fc2.weights + (int64_t{expert} * kFc2Units + at % kFc2Units) * kFc2UnitBytes,
                       kFc2UnitBytes);
  }
}

// hq, hs of a tile's rows -> chunks. A lane's row of weights has pieces t, t + 4 and t + 8, two blocks each.
__device__ __forceinline__ void load_hidden(const Args& args, Chunk (&hidden)[kTokens][kFc2Chunks], const Tile& tile) {
  for (int item = threadIdx.x % 32; item < tile.rows() * kFc2Pieces; item += 32) {
    const int token = item / kFc2Pieces, piece = item % kFc2Pieces;
    const int row = tile.first_row() + token;
    const uint4 codes = __ldcg(reinterpret_cast<const uint4*>(args.fc2.hq + row * kFc2RowBytes) + piece);
    const uint16_t scales = __ldcg(reinterpret_cast<const uint16_t*>(args.fc2.hs + row * kFc2Groups) + piece);
    Chunk& chunk = hidden[token][piece / 4];
    store_block_of_token(chunk, piece % 4, 0, make_uint2(codes.x, codes.y), static_cast<uint8_t>(scales));
    store_block_of_token(chunk, piece % 4, 1, make_uint2(codes.z, codes.w), static_cast<uint8_t>(scales >> 8));
  }
}

// The tiles of FC2, each once all of its FC1 units are finished, wherever they were computed.
__device__ __forceinline__ void bring_hidden(const Args& args, Shared& shared) {
  const Share share = shared.fc2;
  if (share.begin == share.end) return;
  const int first = share.begin / kFc2Units, last = (share.end - 1) / kFc2Units;
  for (int index = first; index <= last; ++index) {
    const int buffer = (index - first) % kHiddenTiles, round = (index - first) / kHiddenTiles;
    ptx::mbarrier_wait(&shared.hidden_consumed[buffer], round % 2 ^ 1);
    while (ptx::load_acquire(&args.route.tiles[index].w) != kFc1Units) {
    }
    load_hidden(args, shared.hidden[buffer], Tile(shared.tiles[index]));
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.hidden_arrived[buffer]);
  }
}

}  // namespace cake_moe::sm90::experts
