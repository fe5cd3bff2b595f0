// The loops that every instruction set shares, written once and compiled by isa_portable.cpp, isa_avx2.cpp and
// isa_avx512.cpp with different flags.
//
// Nothing here may have external linkage: if two of those files emitted the same inline function, the linker would keep
// one, and an old processor could meet AVX-512 code. So all of it is in an anonymous namespace, the functions of
// src/numerics are always inlined, and the standard library is not called.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/config.h"
#include "kernels/cpu/isa.h"
#include "numerics/layout.h"
#include "numerics/nvfp4.h"
#include "numerics/situ.h"

namespace cake_moe::cpu {
namespace {

// Into the second-level cache: the first one is full of activations (FC1) or of the tile in work (FC2).
inline void prefetch(const uint8_t* address) { __builtin_prefetch(address, 0, 2); }

// Geometry of a 128-row weight tile.
struct Fc1Shape {
  static constexpr int kSteps = kFc1Steps;
  static constexpr int kRowBytes = kFc1RowBytes;
  // Distance of the prefetches: two quads of rows ahead, and the cache lines of the scales of the next four quads.
  static constexpr int kWeightsAhead = 2 * kFc1RowBytes;
  static constexpr int kScalesAhead = kStepBytes;
  static int row(int quad) { return quad; }
};
struct Fc2Shape {
  static constexpr int kSteps = kFc2Steps;
  static constexpr int kRowBytes = kFc2RowBytes;
  // The same rows of the next tile.
  static constexpr int kWeightsAhead = kTileRows * kFc2RowBytes;
  static constexpr int kScalesAhead = kTileRows * kFc2Groups;
  // Quads go by output column, so that results come out in order.
  static int row(int quad) { return quad / 4 + quad % 4 * 8; }
};

// `out` of a quad: [4 rows][kBlockTokens] dot products, each lane sum (j, j + 8), (j, j + 4), (j, j + 2), (j, j + 1).
// The instruction set `V` provides
//   Step                                                 128 elements of one token, unpacked
//   unpack(packed, scales, step)                         its 64 bytes and 8 scales
//   quad<Shape, tokens>(rows, scales, activations, out)  rows: the first of the 4 rows, 32 rows apart
template <class V, class Shape, int kTokens>
void tile_products(const uint8_t* weights, const uint8_t* scales, const typename V::Step (*x)[kBlockTokens],
                   float (*out)[kLanes]) {
  for (int quad = 0; quad < kQuads; ++quad) {
    const int row = Shape::row(quad);
    V::template quad<Shape, kTokens>(weights + row * Shape::kRowBytes, scales + row * kQuadScaleBytes, x, out[quad]);
  }
}

template <class V, class Shape>
void tile_products(const uint8_t* weights, const uint8_t* scales, const typename V::Step (*x)[kBlockTokens], int tokens,
                   float (*out)[kLanes]) {
  switch (tokens) {
    case 1:
      return tile_products<V, Shape, 1>(weights, scales, x, out);
    case 2:
      return tile_products<V, Shape, 2>(weights, scales, x, out);
    case 3:
      return tile_products<V, Shape, 3>(weights, scales, x, out);
    default:
      return tile_products<V, Shape, 4>(weights, scales, x, out);
  }
}

template <class V, class Shape>
void unpack_token(const uint8_t* packed, const uint8_t* scales, typename V::Step (*x)[kBlockTokens], int token) {
  for (int s = 0; s < Shape::kSteps; ++s) V::unpack(packed + s * kStepBytes, scales + s * kStepGroups, x[s][token]);
}

// The lane (quarter, token) of every vector: all features of a lane belong to one block of 16.
inline void situ_requantize(const Fc1Tile& tile, const float (*products)[kLanes], int first_row, int tokens) {
  alignas(64) float v[kGroup][kLanes];
  alignas(64) float amax[kLanes] = {};
  for (int up = 0; up < kFc1Block; ++up) {
    if (fc1_row_is_gate(up)) continue;
    const int feature = fc1_row_feature(up);
    const int gate = up + 8;
    for (int lane = 0; lane < kLanes; ++lane) {
      v[feature][lane] = situ(products[gate][lane], products[up][lane], tile.alpha, tile.beta, tile.linear_beta);
      amax[lane] = max_magnitude(amax[lane], abs_bits(v[feature][lane]));
    }
  }

  alignas(64) uint32_t scale[kLanes];
  alignas(64) float factor[kLanes];
  alignas(64) uint32_t keep[kLanes];  // all bits set, or none for a block with a NaN
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint8_t code = hidden_block_scale(amax[lane], tile.encode);
    factor[lane] = hidden_block_factor(code, tile.encode);
    keep[lane] = code == kE4m3Nan ? 0u : ~0u;
    scale[lane] = code;
  }

  alignas(64) uint32_t packed[2][kLanes] = {};
  for (int feature = 0; feature < kGroup; ++feature) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint32_t code = encode_e2m1(mul_rn(v[feature][lane], factor[lane])) & keep[lane];
      packed[feature / 8][lane] |= code << feature % 8 * 4;
    }
  }

  for (int token = 0; token < tokens; ++token) {
    uint8_t* hq = tile.hq + int64_t{first_row + token} * kFc2RowBytes;
    uint8_t* hs = tile.hs + int64_t{first_row + token} * kFc2Groups;
    for (int quarter = 0; quarter < kQuadRows; ++quarter) {
      const int lane = quarter * kBlockTokens + token;
      std::memcpy(hq + quarter * 8, &packed[0][lane], 4);
      std::memcpy(hq + quarter * 8 + 4, &packed[1][lane], 4);
      hs[quarter] = static_cast<uint8_t>(scale[lane]);
    }
  }
}

template <class V>
void fc1_tile(const Fc1Tile& tile) {
  typename V::Step x[kFc1Steps][kBlockTokens];
  alignas(64) float products[kQuads][kLanes];
  for (int first = 0; first < tile.rows; first += kBlockTokens) {
    const int tokens = tile.rows - first < kBlockTokens ? tile.rows - first : kBlockTokens;
    for (int t = 0; t < tokens; ++t) {
      const int64_t source = tile.row_route[first + t] / kTopK;
      unpack_token<V, Fc1Shape>(tile.xq + source * kFc1RowBytes, tile.xs + source * kFc1Groups, x, t);
    }
    tile_products<V, Fc1Shape>(tile.weights, tile.scales, x, tokens, products);
    situ_requantize(tile, products, first, tokens);
  }
}

template <class V>
void fc2_tile(const Fc2Tile& tile) {
  typename V::Step x[kFc2Steps][kBlockTokens];
  alignas(64) float products[kQuads][kLanes];
  alignas(64) uint16_t rounded[kQuads][kLanes];
  for (int first = 0; first < tile.rows; first += kBlockTokens) {
    const int tokens = tile.rows - first < kBlockTokens ? tile.rows - first : kBlockTokens;
    for (int t = 0; t < tokens; ++t) {
      const int64_t row = first + t;
      unpack_token<V, Fc2Shape>(tile.hq + row * kFc2RowBytes, tile.hs + row * kFc2Groups, x, t);
    }
    tile_products<V, Fc2Shape>(tile.weights, tile.scales, x, tokens, products);
    for (int c = 0; c < kQuads; ++c) {
      for (int lane = 0; lane < kLanes; ++lane) rounded[c][lane] = float_to_bf16(mul_rn(products[c][lane], tile.alpha));
    }
    for (int t = 0; t < tokens; ++t) {
      uint16_t* y = tile.y + int64_t{first + t} * kHidden;
      for (int quarter = 0; quarter < kQuadRows; ++quarter) {
        for (int c = 0; c < kQuads; ++c) y[quarter * kQuads + c] = rounded[c][quarter * kBlockTokens + t];
      }
    }
  }
}

// Blocks are taken kLanes at a time, so that the divisions for their scales are vectorised too.
inline void quantize_blocks(const uint16_t* x, int64_t blocks, float encode, uint8_t* packed, uint8_t* scales) {
  for (int64_t first = 0; first < blocks; first += kLanes) {
    const int count = blocks - first < kLanes ? static_cast<int>(blocks - first) : kLanes;
    const uint16_t* batch = x + first * kGroup;
    alignas(64) uint32_t amax_bits[kLanes] = {};
    for (int b = 0; b < count; ++b) {
      uint16_t amax = 0;
      for (int i = 0; i < kGroup; ++i) {
        const uint16_t magnitude = batch[b * kGroup + i] & 0x7FFFu;
        amax = magnitude > amax ? magnitude : amax;
      }
      amax_bits[b] = amax;
    }
    alignas(64) uint32_t scale[kLanes];
    alignas(64) float factor[kLanes];
    for (int b = 0; b < kLanes; ++b) {
      const float amax = bits_float(amax_bits[b] << 16);
      const uint8_t code = input_block_scale(amax, encode);
      factor[b] = input_block_factor(amax, code, encode);
      scale[b] = code;
    }
    for (int b = 0; b < count; ++b) {
      alignas(64) uint32_t code[kGroup];
      for (int i = 0; i < kGroup; ++i) {
        code[i] = encode_e2m1(mul_rn(bf16_to_float(batch[b * kGroup + i]), factor[b])) << i % 8 * 4;
      }
      uint32_t low = 0, high = 0;
      for (int i = 0; i < 8; ++i) low |= code[i];
      for (int i = 8; i < 16; ++i) high |= code[i];
      const uint64_t codes = scale[b] == kE4m3Nan ? 0 : low | static_cast<uint64_t>(high) << 32;
      std::memcpy(packed + (first + b) * (kGroup / 2), &codes, sizeof(codes));
      scales[first + b] = static_cast<uint8_t>(scale[b]);
    }
  }
}

// Not inlined: GCC 12 would jam this loop with the one around it and vectorise neither.
[[gnu::noinline]] inline void add_weighted(float weight, const uint16_t* row, float* sum) {
  for (int c = 0; c < kFinalizeColumns; ++c) sum[c] = fma_rn(weight, bf16_to_float(row[c]), sum[c]);
}

inline void finalize_token(const float* weights, const uint16_t* const* rows, int count, uint16_t* output) {
  for (int first = 0; first < kHidden; first += kFinalizeColumns) {
    alignas(64) float sum[kFinalizeColumns] = {};
    for (int k = 0; k < count; ++k) add_weighted(weights[k], rows[k] + first, sum);
    for (int c = 0; c < kFinalizeColumns; ++c) output[first + c] = float_to_bf16(sum[c]);
  }
}

template <class V>
constexpr Kernels make_kernels() {
  return {quantize_blocks, fc1_tile<V>, fc2_tile<V>, finalize_token};
}

}  // namespace
}  // namespace cake_moe::cpu
