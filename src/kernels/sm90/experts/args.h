#pragma once

#include <cstdint>

#include "kernels/sm90/fc1/args.h"
#include "kernels/sm90/fc2/args.h"

namespace cake_moe::sm90::experts {

// What routing reads and writes: outputs of route::Args.
struct RouteArgs {
  const int32_t* ids;       // [M, 16]
  int num_tokens;           // M
  int32_t* expert_offsets;  // [E + 1]
  int32_t* row_route;       // [16 * M]
  int32_t* route_row;       // [16 * M]
};

struct InputArgs {
  const uint4* x;       // bf16 [M, 3584]
  const float* encode;  // qX, 1 element
  uint2* xq;            // e2m1 [M, 224 blocks of 8 bytes]
  uint8_t* xs;          // e4m3 [M, 224]
};

struct Packet;  // packets.cuh

struct Args {
  RouteArgs route;
  InputArgs input;
  fc1::Args fc1;
  fc2::Args fc2;
  Packet* packets;  // [16 * M, 24 blocks], in the place of the workspace's x_half
};

}  // namespace cake_moe::sm90::experts
