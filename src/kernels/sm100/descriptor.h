// Bit fields of the tensor core's descriptors, and the operand layouts that they describe.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#tcgen05-shared-memory-descriptor
// https://docs.nvidia.com/cuda/parallel-thread-execution/#tcgen05-instruction-descriptor
#pragma once

#include <cstdint>

namespace cake_moe::sm100 {

inline constexpr int kMmaRows = 128;         // weight rows of an MMA
inline constexpr int kMmaK = 64;             // elements of K of an MMA
inline constexpr int kMmaBytes = kMmaK / 2;  // packed bytes of them
inline constexpr int kScaleAtomBytes = 512;  // scale factors of 128 rows and one MMA's four groups
inline constexpr int kScaleAtomColumns = 4;  // of tensor memory
inline constexpr int kScaleAtomRows = 128;

// Instruction descriptor of an e2m1 by e2m1 MMA with ue4m3 scales, fp32 sums, 128 rows by n columns, K = 64.
constexpr uint32_t nvfp4_instruction(int n) {
  constexpr uint32_t kE2m1 = 1;
  return kE2m1 << 7 | kE2m1 << 10 | static_cast<uint32_t>(n >> 3) << 17 | uint32_t{kMmaRows >> 7} << 27;
}

// A K-major operand whose rows of kRowBytes lie in the swizzle of that width, eight rows to an atom. The address is
// that of an atom, or of an MMA's step of K inside the first row.
template <int kRowBytes>
constexpr uint64_t operand_descriptor(uint32_t shared_address) {
  static_assert(kRowBytes == 128 || kRowBytes == 64);
  constexpr uint64_t kSwizzle = kRowBytes == 128 ? 2 : 4;
  constexpr uint64_t kAtomBytes = 8 * kRowBytes;
  return kSwizzle << 61 | uint64_t{1} << 46 | kAtomBytes >> 4 << 32 | uint64_t{1} << 16 |
         (shared_address & 0x3FFFF) >> 4;
}

// An atom of scale factors: 32 rows of 16 bytes, contiguous.
constexpr uint64_t scale_descriptor(uint32_t shared_address) {
  constexpr uint64_t kCoreBytes = 8 * 16;
  return uint64_t{1} << 46 | kCoreBytes >> 4 << 32 | kCoreBytes >> 4 << 16 | (shared_address & 0x3FFFF) >> 4;
}

// Byte of a 16-byte piece of an operand's row.
template <int kRowBytes>
constexpr int swizzled_byte(int row, int piece) {
  constexpr int kPieces = kRowBytes / 16;
  return row * kRowBytes + (piece ^ row * kRowBytes / 128 % kPieces) * 16;
}

// Byte of the scales of a row's four groups in the atoms of its MMA; kScaleAtomRows rows an atom.
constexpr int scale_byte(int row) {
  return row / kScaleAtomRows * kScaleAtomBytes + row % 32 * 16 + row % kScaleAtomRows / 32 * 4;
}

}  // namespace cake_moe::sm100
