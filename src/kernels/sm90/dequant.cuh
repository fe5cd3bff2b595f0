// FP4 -> fp16 operand fragments, and the K order that they imply.
//
// A lane of an MMA fragment (row r = lane / 4, t = lane % 4) reads whole 16-byte pieces of a packed row: 32 elements.
// A K step of 64 ("segment") is half of the piece of each of the four lanes: two 32-bit words w0, w1 a lane. Word j
// gives the pairs (element k, element k + 4), k = 0..3, of its eight elements; the four MMA steps of the segment take
// the pairs (w0: 0, 1), (w0: 2, 3), (w1: 0, 1), (w1: 2, 3) as the fragment's low and high K halves. The activations are
// stored in the same order: position 16 * (2 * j + h) + 8 * a + 2 * t + b of a segment holds element 2 * h + a + 4 * b
// of word j of lane t.
//
// Values carry a factor 2^-kHalfShift: e2m1 bits placed in an fp16 are value * 2^-14, and the scale is brought up by
// 2^7, so that the product is exact for every code.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/ptx/convert_half.cuh"

namespace cake_moe::sm90 {

inline constexpr int kHalfShift = 7;
inline constexpr int kSegment = 64;                     // K elements of a segment
inline constexpr float kUnshift = 1 << 2 * kHalfShift;  // undoes the factors of both operands

// Two neighbouring e4m3 block scales, each times 2^kHalfShift; the NaN code stays NaN.
__device__ __forceinline__ __half2 shifted_scales(uint16_t codes) {
  return __hmul2(ptx::cvt_f16x2_e4m3x2(codes), __half2half2(__ushort_as_half(0x5800)));
}

// Constants unknown to the compiler, read as constant-bank operands: it would turn multiplications by known factors
// into shifts, and the pipe of shifts and logic is the bottleneck, while multiplications run beside it; and it would
// undo a merge whose mask it knows.
struct ShiftFactors {
  uint32_t by_1, by_4, by_8;
};
static __constant__ ShiftFactors shift_factors = {1u << 1, 1u << 4, 1u << 8};
static __constant__ uint32_t magnitude_bits = 0x0E0E0E0E;  // of the codes in the high bytes of fp16

__device__ __forceinline__ uint32_t merge_codes(uint32_t magnitude, uint32_t sign) {
  return (magnitude & magnitude_bits) | (sign & ~magnitude_bits);
}

// Two halves whose high bytes hold merged codes, bits that belong to other codes cleared.
__device__ __forceinline__ uint32_t scaled_pair(uint32_t codes, __half2 scale) {
  const uint32_t bits = codes & 0x8E008E00u;
  const __half2 product = __hmul2(reinterpret_cast<const __half2&>(bits), scale);
  return reinterpret_cast<const uint32_t&>(product);
}

// Eight codes, element 0 in the low nibble -> pairs (k, k + 4), k = 0..3. Every byte holds a code of an even and one of
// an odd element: each is merged for all four bytes at once.
__device__ __forceinline__ void dequantize_word(uint32_t word, __half2 scale, uint32_t (&pairs)[4]) {
  const uint32_t even = merge_codes(word * shift_factors.by_1, word * shift_factors.by_4);
  const uint32_t odd = merge_codes(word >> 3, word);
  pairs[0] = scaled_pair(even * shift_factors.by_8, scale);
  pairs[1] = scaled_pair(odd * shift_factors.by_8, scale);
  pairs[2] = scaled_pair(even, scale);
  pairs[3] = scaled_pair(odd, scale);
}

// The A fragments of a segment's four MMA steps, from two words of row r (`low`) and of row r + 8 (`high`).
__device__ __forceinline__ void dequantize_segment(uint32_t low0, uint32_t low1, __half2 low_scale, uint32_t high0,
                                                   uint32_t high1, __half2 high_scale, uint32_t (&a)[4][4]) {
  const uint32_t low[] = {low0, low1}, high[] = {high0, high1};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    uint32_t pairs_low[4], pairs_high[4];
    dequantize_word(low[j], low_scale, pairs_low);
    dequantize_word(high[j], high_scale, pairs_high);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      a[2 * j + h][0] = pairs_low[2 * h];
      a[2 * j + h][1] = pairs_high[2 * h];
      a[2 * j + h][2] = pairs_low[2 * h + 1];
      a[2 * j + h][3] = pairs_high[2 * h + 1];
    }
  }
}

// The same K order by whole 16-byte pieces: those of word j are 4 * j .. 4 * j + 3 of a row's segment, and piece
// 4 * j + k holds pair k of the word j of all four lanes t. From these four words, of one row.
__device__ __forceinline__ void dequantize_pieces(const uint32_t (&words)[4], const __half2 (&scales)[4],
                                                  uint4 (&pieces)[4]) {
  uint32_t pairs[4][4];
#pragma unroll
  for (int t = 0; t < 4; ++t) dequantize_word(words[t], scales[t], pairs[t]);
#pragma unroll
  for (int k = 0; k < 4; ++k) pieces[k] = make_uint4(pairs[0][k], pairs[1][k], pairs[2][k], pairs[3][k]);
}

// Byte of pair 2 * h + a of word j of lane t inside a segment of 64 fp16.
__host__ __device__ constexpr int segment_byte(int j, int h, int a, int t) { return 32 * (2 * j + h) + 16 * a + 4 * t; }

}  // namespace cake_moe::sm90
