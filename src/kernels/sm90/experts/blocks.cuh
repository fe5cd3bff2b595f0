// The arithmetic of the experts kernel: integer MMAs over quantisation blocks, scales in fp32.
//
// Twice an e2m1 value is an integer of at most 12, so the sum of a block of sixteen products is an exact integer, and
// only one fp32 FMA a block rounds: sum of (block sum) * (weight scale * token scale). A table lookup brings eight
// codes to bytes in 9 instructions, half of what fp16 operands with their scales take.
//
// The MMA's eight columns hold four blocks each of two tokens: lane t of a fragment row brings a 16-byte piece of
// packed weights, two blocks, and columns t and t + 4 of the tokens, one a token, are zero but for the K of lane t. Two
// MMAs sum the first blocks of the four lanes, two the second ones ("chunk", K = 128 in all). Lane t then holds columns
// 2t and 2t + 1 of its rows r and r + 8: those of token t / 2, from the lanes c = 2 * (t % 2) and c + 1.
//
// Weights carry an offset, code -> 12 + 2 * value, which makes them unsigned; the sums start at -12 * sum of the
// block's tokens, plus the bits of 1.5 * 2^23, which turn them into floats without a conversion.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/ptx/convert_half.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/sm90/dequant.cuh"
#include "kernels/sm90/experts/config.h"
#include "numerics/nvfp4.h"

namespace cake_moe::sm90::experts {

inline constexpr int kByteOffset = 12;
inline constexpr int kFloatBits = 0x4B400000;  // 1.5 * 2^23: adding an integer to the bits adds it to the value
inline constexpr float kFloatOffset = 12582912.0f;
inline constexpr float kProductScale = 0.25f;  // both operands are doubled

// Twice the magnitudes of codes 0..3 and 4..7, and kByteOffset minus them, as bytes.
inline constexpr uint32_t kMagnitudesLow = 0x03020100u, kMagnitudesHigh = 0x0C080604u;
inline constexpr uint32_t kBelowOffsetLow = 0x090A0B0Cu, kBelowOffsetHigh = 0x00040608u;

// Eight codes -> bytes kByteOffset + 2 * value, elements 0..3 and 4..7. A selector with the code's sign bit set gives
// the table byte's own top bit eight times, that is zero: a negative code adds nothing to kByteOffset - magnitude, a
// positive one twice its magnitude. The products run on a pipe that is free.
__device__ __forceinline__ void offset_bytes(uint32_t word, uint32_t& first, uint32_t& second) {
  const uint32_t magnitudes = word & 0x77777777u;
  first = ptx::prmt(kMagnitudesLow, kMagnitudesHigh, word) * shift_factors.by_1 +
          ptx::prmt(kBelowOffsetLow, kBelowOffsetHigh, magnitudes);
  second = ptx::prmt(kMagnitudesLow, kMagnitudesHigh, word >> 16) * shift_factors.by_1 +
           ptx::prmt(kBelowOffsetLow, kBelowOffsetHigh, magnitudes >> 16);
}

// A chunk of a token in memory: bytes [block h of a lane][lane c][16 elements], then the starts of the blocks' sums and
// their scales, [h][pair of lanes].
inline constexpr int kChunkValueBytes = kChunkK;
struct ColumnPair {
  int32_t start[2];
  float scale[2];
};
struct Chunk {
  uint4 values[2][4];
  ColumnPair columns[2][2];
};
static_assert(sizeof(Chunk) == kChunkBytes);

__device__ __forceinline__ void store_block_of_token(Chunk& chunk, int c, int h, uint2 codes, uint8_t scale) {
  uint32_t bytes[4];
  offset_bytes(codes.x, bytes[0], bytes[1]);
  offset_bytes(codes.y, bytes[2], bytes[3]);
  int32_t sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    bytes[i] = __vsub4(bytes[i], kByteOffset * 0x01010101u);
    sum = __dp4a(static_cast<int32_t>(bytes[i]), 0x01010101, sum);
  }
  chunk.values[h][c] = make_uint4(bytes[0], bytes[1], bytes[2], bytes[3]);
  ColumnPair& columns = chunk.columns[h][c / 2];
  columns.start[c % 2] = kFloatBits - kByteOffset * sum;
  columns.scale[c % 2] = decode_e4m3(scale);
}

// Weight fragments of a chunk: [block][word][row r or r + 8][elements 0..3 or 4..7].
struct WeightBytes {
  uint32_t bytes[2][2][2][2];

  __device__ __forceinline__ WeightBytes(const uint4& low, const uint4& high) {
    const uint32_t words[2][4] = {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
#pragma unroll
    for (int row = 0; row < 2; ++row) {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        offset_bytes(words[row][w], bytes[w / 2][w % 2][row][0], bytes[w / 2][w % 2][row][1]);
      }
    }
  }
};

// Scales of a chunk for rows r and r + 8: [row][h][column].
struct WeightScales {
  float at[2][2][2];

  // The e4m3 codes of both blocks of a lane, for each row and column.
  __device__ __forceinline__ void set(int row, int column, uint16_t codes) {
    const float2 scales = __half22float2(ptx::cvt_f16x2_e4m3x2(codes));
    at[row][0][column] = scales.x;
    at[row][1][column] = scales.y;
  }
};

// A lane's running sums of rows r and r + 8 for its token of a pair.
struct PairSums {
  float row[2];
};
inline constexpr int kPairs = kTokens / 2;

// Where a lane finds its part of a pair of tokens: all but two lanes of a K read zeros.
struct PairReader {
  const uint8_t *values, *columns;

  __device__ __forceinline__ PairReader(const Chunk* first_token, const Chunk* second_token, const uint8_t* zeros) {
    const int lane = threadIdx.x % 32, n = lane / 4, t = lane % 4;
    const auto bytes = [&](bool second) {
      return reinterpret_cast<const uint8_t*>(second ? second_token : first_token);
    };
    values = n % 4 == t ? bytes(n >= 4) + t * 16 : zeros;
    columns = bytes(t >= 2) + kChunkValueBytes + t % 2 * 16;
  }
};

__device__ __forceinline__ void multiply_chunk(PairSums& sums, const WeightBytes& weights, const WeightScales& scales,
                                               const PairReader& reader, int chunk) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const uint4 b = *reinterpret_cast<const uint4*>(reader.values + chunk * kChunkBytes + 64 * h);
    const uint4 q = *reinterpret_cast<const uint4*>(reader.columns + chunk * kChunkBytes + 32 * h);
    int32_t d[4] = {static_cast<int32_t>(q.x), static_cast<int32_t>(q.y), static_cast<int32_t>(q.x),
                    static_cast<int32_t>(q.y)};
    const auto& a = weights.bytes[h];
    ptx::mma_m16n8k32_u8_s8(d, a[0][0][0], a[0][1][0], a[0][0][1], a[0][1][1], b.x, b.y);
    ptx::mma_m16n8k32_u8_s8(d, a[1][0][0], a[1][1][0], a[1][0][1], a[1][1][1], b.z, b.w);
    const float token_scales[] = {__uint_as_float(q.z), __uint_as_float(q.w)};
#pragma unroll
    for (int row = 0; row < 2; ++row) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float block = __int_as_float(d[2 * row + c]) - kFloatOffset;
        sums.row[row] = fma_rn(block, mul_rn(scales.at[row][h][c], token_scales[c]), sums.row[row]);
      }
    }
  }
}

// Adds the two lanes of each token; lane t of a row keeps tokens 2t and 2t + 1: acc[c] of row r, acc[2 + c] of row
// r + 8, as the fp16 MMAs leave them, with the factor that their epilogues undo.
__device__ __forceinline__ void gather_tokens(const PairSums (&sums)[kPairs], int rows, float (&acc)[4]) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair) {
    if (2 * pair >= rows) break;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float own = sums[pair].row[row];
      const float sum = add_rn(own, __shfl_xor_sync(~0u, own, 1)) * (kProductScale / kUnshift);
      const float other = __shfl_xor_sync(~0u, sum, 2);
      if (pair != t) continue;
      acc[2 * row] = t < 2 ? sum : other;
      acc[2 * row + 1] = t < 2 ? other : sum;
    }
  }
}

}  // namespace cake_moe::sm90::experts
