// Tensor memory and the tcgen05 instructions of one CTA on sm_90a, as functions that rewritten PTX calls.
//
// A CTA's tensor memory is a piece of global memory. What the hardware does asynchronously is done at once, by the
// thread or warp that issues it, so that fences and waits of tcgen05 have nothing to order and are left out.
// Descriptors and layouts are decoded as the PTX ISA describes them and share nothing with the kernels' sources. A
// violated rule fails an assertion, which ends the launch with an error. Instructions of a whole warp begin with the
// warp's barrier: .aligned says that all lanes come.
#include <cuda_awbarrier_primitives.h>

#include <cassert>
#include <cstdint>

namespace {

constexpr int kCtas = 192;  // of a grid at most
constexpr int kLanes = 128, kColumns = 512, kPartition = 32;
constexpr uint32_t kPoison = 0x7FC0'DEAD;  // a NaN: what nobody has written

struct TensorMemory {
  uint32_t cells[kLanes][kColumns];
  uint32_t first, count;  // columns that are allocated
};
__device__ TensorMemory tensor_memories[kCtas];

__device__ TensorMemory& of_this_cta() {
  assert(gridDim.y * gridDim.z == 1 && blockIdx.x < kCtas);
  return tensor_memories[blockIdx.x];
}

__device__ uint32_t lane_of(uint32_t address) { return address >> 16; }
__device__ uint32_t column_of(uint32_t address) { return address & 0xFFFF; }

__device__ void check_allocated(const TensorMemory& memory, uint32_t column, uint32_t columns) {
  assert(memory.first <= column && column + columns <= memory.first + memory.count);
}

__device__ uint32_t lane_id() { return threadIdx.x % 32; }
__device__ bool is_one_thread() { return __popc(__activemask()) == 1; }

}  // namespace

// The allocation ends at the last column: kernels must use the address that they are given.
extern "C" __device__ __noinline__ void downlevel_tmem_alloc(uint32_t shared, uint32_t columns) {
  TensorMemory& memory = of_this_cta();
  __syncwarp();
  assert(memory.count == 0);
  assert(columns >= 32 && columns <= kColumns && __popc(columns) == 1);
  const uint32_t first = kColumns - columns;
  for (int lane = 0; lane < kLanes; ++lane) {
    for (uint32_t column = first + lane_id(); column < kColumns; column += 32) memory.cells[lane][column] = kPoison;
  }
  __syncwarp();
  if (lane_id() != 0) return;
  memory.first = first;
  memory.count = columns;
  *static_cast<uint32_t*>(__cvta_shared_to_generic(shared)) = first;
}

extern "C" __device__ __noinline__ void downlevel_tmem_dealloc(uint32_t address, uint32_t columns) {
  TensorMemory& memory = of_this_cta();
  __syncwarp();
  assert(address == memory.first && columns == memory.count);
  __syncwarp();
  if (lane_id() == 0) memory.count = 0;
}

namespace {

// A K-major operand in shared memory, or the scale factors that tcgen05.cp reads: 8 rows to a group.
struct Operand {
  uint32_t start, stride, row_bytes;
  uint32_t swizzled_pieces;  // 16-byte pieces of a row that trade places; 1: none

  __device__ explicit Operand(uint64_t descriptor)
      : start((descriptor & 0x3FFF) << 4), stride((descriptor >> 32 & 0x3FFF) << 4) {
    constexpr uint64_t kZeroBits = 0x1FFE'0000'C000'C000;  // reserved, base offset, absolute leading
    const uint32_t mode = static_cast<uint32_t>(descriptor >> 61);
    assert((descriptor & kZeroBits) == 0 && (descriptor >> 46 & 7) == 1);
    assert(mode == 0 || mode == 2 || mode == 4);
    row_bytes = mode == 2 ? 128 : mode == 4 ? 64 : 16;
    swizzled_pieces = row_bytes / 16;
    assert(stride >= 8 * row_bytes && start % (8 * row_bytes) < row_bytes);
  }

  __device__ uint4 piece(uint32_t row, uint32_t index) const {
    const uint32_t linear = start + row / 8 * stride + row % 8 * row_bytes + index * 16;
    const uint32_t address = linear ^ ((linear / 128 & (swizzled_pieces - 1)) << 4);
    return *static_cast<const uint4*>(__cvta_shared_to_generic(address));
  }
};

}  // namespace

// tcgen05.cp.32x128b.warpx4: 32 rows of 16 bytes to the same lane of every partition.
extern "C" __device__ __noinline__ void downlevel_tmem_copy_scales(uint32_t address, uint64_t descriptor) {
  TensorMemory& memory = of_this_cta();
  const Operand source(descriptor);
  assert(is_one_thread() && lane_of(address) == 0 && source.row_bytes == 16);
  check_allocated(memory, column_of(address), 4);
  for (uint32_t row = 0; row < kPartition; ++row) {
    const uint4 scales = source.piece(row, 0);
    for (uint32_t lane = row; lane < kLanes; lane += kPartition) {
      uint32_t* cells = &memory.cells[lane][column_of(address)];
      cells[0] = scales.x, cells[1] = scales.y, cells[2] = scales.z, cells[3] = scales.w;
    }
  }
}

namespace {

constexpr int kGroups = 4, kWordsOfGroup = 4;
constexpr int kZeroExponent = -126;  // with which a zero takes part in the alignment
constexpr int kFractionBits = 35;    // that the aligned terms keep
constexpr uint32_t kNan = 0x7FFF'FFFF;

// 64 elements of a row in halves, four to a word, and the scale of each 16: significand / 8 * 2^exponent.
struct Row {
  int32_t halves[kGroups][kWordsOfGroup];
  int32_t significand[kGroups], exponent[kGroups];
  bool is_nan;
};

// Four e2m1 codes to four bytes of halves.
__device__ int32_t halves_of(uint32_t codes) {
  const uint32_t magnitudes = codes & 0x7777;
  const uint32_t positive = __byte_perm(0x0302'0100, 0x0C08'0604, magnitudes);
  const uint32_t negative = __byte_perm(0xFDFE'FF00, 0xF4F8'FAFC, magnitudes);
  const uint32_t is_negative = __byte_perm(0x0000'FF00, 0, codes >> 3 & 0x1111);
  return static_cast<int32_t>((positive & ~is_negative) | (negative & is_negative));
}

__device__ void unpack_group(uint32_t low, uint32_t high, int32_t (&halves)[kWordsOfGroup]) {
  halves[0] = halves_of(low & 0xFFFF), halves[1] = halves_of(low >> 16);
  halves[2] = halves_of(high & 0xFFFF), halves[3] = halves_of(high >> 16);
}

__device__ void unpack_scale(uint32_t code, int32_t& significand, int32_t& exponent) {
  const int field = static_cast<int>(code >> 3 & 15), fraction = static_cast<int>(code & 7);
  significand = field == 0 ? fraction : 8 + fraction;
  exponent = significand == 0 ? kZeroExponent : max(field, 1) - 7;
}

// The four scales of a row; they must be the same in every partition.
__device__ uint32_t scales_of(const TensorMemory& memory, uint32_t address, uint32_t row) {
  const uint32_t lane = row % kPartition, column = column_of(address) + row / kPartition;
  const uint32_t scales = memory.cells[lane][column];
  for (uint32_t other = lane + kPartition; other < kLanes; other += kPartition) {
    assert(memory.cells[other][column] == scales);
  }
  return scales;
}

__device__ Row unpack_row(const Operand& operand, uint32_t row, uint32_t scales) {
  Row result;
  const uint4 first = operand.piece(row, 0), second = operand.piece(row, 1);
  unpack_group(first.x, first.y, result.halves[0]);
  unpack_group(first.z, first.w, result.halves[1]);
  unpack_group(second.x, second.y, result.halves[2]);
  unpack_group(second.z, second.w, result.halves[3]);
  result.is_nan = false;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const uint32_t code = scales >> 8 * group & 0x7F;  // the sign is ignored
    unpack_scale(code, result.significand[group], result.exponent[group]);
    result.is_nan |= code == 0x7F;
  }
  return result;
}

// value * 2^(left - right) toward zero.
__device__ int64_t aligned(int32_t value, int left, int right) {
  const int64_t magnitude = static_cast<int64_t>(abs(value)) << left >> min(right, 63);
  return value < 0 ? -magnitude : magnitude;
}

// sum * 2^exponent toward zero; infinite beyond the largest finite value.
__device__ uint32_t float_toward_zero(int64_t sum, int exponent) {
  if (sum == 0) return 0;
  const uint32_t sign = sum < 0 ? 0x8000'0000 : 0;
  const uint64_t magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
  const int result_exponent = max(63 - __clzll(static_cast<long long>(magnitude)) + exponent, -126);
  if (result_exponent > 127) return sign | 0x7F80'0000;
  const int shift = result_exponent - 23 - exponent;
  const uint64_t kept = shift >= 0 ? magnitude >> min(shift, 63) : magnitude << -shift;
  // A full significand carries the exponent's last unit; a subnormal one does not.
  return sign | (static_cast<uint32_t>(result_exponent + 126) << 23) + static_cast<uint32_t>(kept);
}

// One accumulator's step: the four scaled group sums and the accumulator are aligned to the largest exponent, cut off
// behind kFractionBits, added exactly and rounded toward zero (MMA-Sim, arXiv 2511.10909).
__device__ uint32_t multiply_add(const Row& a, const Row& b, uint32_t c) {
  const uint32_t field = c >> 23 & 0xFF, fraction = c & 0x7F'FFFF;
  if (a.is_nan || b.is_nan || (field == 0xFF && fraction != 0)) return kNan;
  if (field == 0xFF) return c;
  const int32_t c_magnitude = static_cast<int32_t>(field == 0 ? fraction : fraction | 0x80'0000);
  const int c_exponent = c_magnitude == 0 ? kZeroExponent : static_cast<int>(max(field, 1u)) - 127;
  int32_t terms[kGroups];
  int exponents[kGroups], largest = c_exponent;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    int32_t dot = 0;
#pragma unroll
    for (int word = 0; word < kWordsOfGroup; ++word) dot = __dp4a(a.halves[group][word], b.halves[group][word], dot);
    terms[group] = dot * (a.significand[group] * b.significand[group]);
    exponents[group] = a.exponent[group] + b.exponent[group];
    largest = max(largest, exponents[group]);
  }
  int64_t sum = aligned(c >> 31 ? -c_magnitude : c_magnitude, kFractionBits - 23, largest - c_exponent);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {  // two halves make quarters, two significands 64ths
    sum += aligned(terms[group], kFractionBits - 2 - 6, largest - exponents[group]);
  }
  return float_toward_zero(sum, largest - kFractionBits);
}

}  // namespace

// tcgen05.mma of kind mxf4nvf4 with ue4m3 scales of 16 elements: 128 rows by N columns by K = 64.
extern "C" __device__ __noinline__ void downlevel_mma_nvfp4(uint32_t d, uint64_t a_descriptor, uint64_t b_descriptor,
                                                            uint32_t instruction, uint32_t a_scales, uint32_t b_scales,
                                                            uint32_t accumulate) {
  constexpr uint32_t kColumnField = 0x3F << 17;
  constexpr uint32_t kE2m1Operands = 1 << 7 | 1 << 10, kRows128 = 1 << 27;
  constexpr uint32_t kBlock = 4;  // columns whose rows of B are held unpacked
  TensorMemory& memory = of_this_cta();
  const Operand a(a_descriptor), b(b_descriptor);
  const uint32_t columns = (instruction & kColumnField) >> 14;
  assert(is_one_thread() && (instruction & ~kColumnField) == (kE2m1Operands | kRows128));
  assert(columns >= 8 && columns <= 256 && a.row_bytes > 16 && b.row_bytes > 16);
  assert((lane_of(d) | lane_of(a_scales) | lane_of(b_scales)) == 0);
  check_allocated(memory, column_of(d), columns);
  check_allocated(memory, column_of(a_scales), kLanes / kPartition);
  check_allocated(memory, column_of(b_scales), (columns + kPartition - 1) / kPartition);
  for (uint32_t first = 0; first < columns; first += kBlock) {
    Row b_rows[kBlock];
    for (uint32_t i = 0; i < kBlock; ++i) {
      b_rows[i] = unpack_row(b, first + i, scales_of(memory, b_scales, first + i));
    }
    for (uint32_t row = 0; row < kLanes; ++row) {
      const Row a_row = unpack_row(a, row, scales_of(memory, a_scales, row));
      uint32_t* cells = &memory.cells[row][column_of(d) + first];
      for (uint32_t i = 0; i < kBlock; ++i) cells[i] = multiply_add(a_row, b_rows[i], accumulate ? cells[i] : 0);
    }
  }
}

// tcgen05.commit: what it would wait for has been done.
extern "C" __device__ __noinline__ void downlevel_commit(uint32_t barrier) {
  assert(is_one_thread());
  __mbarrier_arrive(static_cast<__mbarrier_t*>(__cvta_shared_to_generic(barrier)));
}

// tcgen05.ld.16x256b.x1: of sixteen lanes by eight columns, thread t gets lanes t / 4 and t / 4 + 8, columns 2 * (t %
// 4) and the next.
extern "C" __device__ __noinline__ uint4 downlevel_tmem_load_16x8(uint32_t address) {
  const TensorMemory& memory = of_this_cta();
  __syncwarp();
  const uint32_t lane = lane_of(address) + lane_id() / 4, column = column_of(address) + 2 * (lane_id() % 4);
  assert(lane_of(address) % 16 == 0);
  assert(lane_of(address) / kPartition == threadIdx.x / 32 % 4);  // a warp reaches its own partition
  check_allocated(memory, column_of(address), 8);
  return {memory.cells[lane][column], memory.cells[lane][column + 1], memory.cells[lane + 8][column],
          memory.cells[lane + 8][column + 1]};
}
