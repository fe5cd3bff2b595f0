// The loops that are compiled once per instruction set, and the choice among them.
#pragma once

#include <cstdint>

#include "kernels/cpu/backend.h"

namespace cake_moe::cpu {

// FC1, SiTU and requantisation of one 128-row weight tile (64 features) for some rows of one expert.
struct Fc1Tile {
  const uint8_t* weights;  // [128, 1792]
  const uint8_t* scales;   // [128 * 224], interleaved
  float alpha;             // dX*dW13
  float beta, linear_beta;
  float encode;  // 1/dA
  int rows;
  const int32_t* row_route;  // [rows], route = token * 16 + slot
  const uint8_t* xq;         // [M, 1792]
  const uint8_t* xs;         // [M, 224]
  uint8_t* hq;               // [rows, 192], already at the tile's first byte
  uint8_t* hs;               // [rows, 24], already at the tile's first scale
};

// FC2 of one 128-row weight tile (128 output columns) for some rows of one expert.
struct Fc2Tile {
  const uint8_t* weights;  // [128, 192]
  const uint8_t* scales;   // [128 * 24], interleaved
  float alpha;             // dA*dW2
  int rows;
  const uint8_t* hq;  // [rows, 192]
  const uint8_t* hs;  // [rows, 24]
  uint16_t* y;        // bf16 [rows, 3584], already at the tile's first column
};

struct Kernels {
  // x bf16 [blocks, 16] -> packed [blocks, 8], scales [blocks].
  void (*quantize)(const uint16_t* x, int64_t blocks, float encode, uint8_t* packed, uint8_t* scales);
  void (*fc1)(const Fc1Tile& tile);
  void (*fc2)(const Fc2Tile& tile);
  // output[3584] = bf16(sum over k of weights[k] * rows[k][3584]), in the order of k.
  void (*finalize)(const float* weights, const uint16_t* const* rows, int count, uint16_t* output);
};

extern const Kernels kPortableKernels;
#if defined(CAKE_CPU_X86)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

const Kernels& kernels(Isa isa);

}  // namespace cake_moe::cpu
