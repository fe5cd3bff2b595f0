#include "model/smem_layout.h"

#include <string>

namespace ptxrun::model {
namespace {

constexpr uint32_t kUnit = 16;   // bytes that stay together under a swizzle
constexpr uint32_t kGroup = 8;   // rows of a core matrix
constexpr uint32_t kLine = 128;  // bytes of shared memory that share one phase of the pattern

constexpr uint64_t field(uint64_t value, int first, int count) {
  return (value >> first) & ((uint64_t{1} << count) - 1);
}

std::string hex(uint64_t value) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), digits[value & 15]);
    value >>= 4;
  } while (value != 0);
  return "0x" + text;
}

void expect_zero(uint64_t descriptor, int first, int count, Problems& problems) {
  if (const uint64_t bits = field(descriptor, first, count); bits != 0) {
    problems.push_back({"smem_descriptor.reserved_bits", "bits " + std::to_string(first) + "-" +
                                                             std::to_string(first + count - 1) + " of " +
                                                             hex(descriptor) + " must be zero"});
  }
}

SmemMatrix decode_common(uint64_t descriptor, Problems& problems) {
  expect_zero(descriptor, 14, 2, problems);
  expect_zero(descriptor, 30, 2, problems);
  SmemMatrix matrix;
  matrix.start = static_cast<uint32_t>(field(descriptor, 0, 14) << 4);
  matrix.leading = static_cast<uint32_t>(field(descriptor, 16, 14) << 4);
  matrix.stride = static_cast<uint32_t>(field(descriptor, 32, 14) << 4);
  matrix.base_offset = static_cast<uint32_t>(field(descriptor, 49, 3));
  return matrix;
}

void check_swizzle_start(const SmemMatrix& matrix, Problems& problems) {
  const uint32_t pattern = kGroup * matrix.swizzle;
  const bool aligned = matrix.start % pattern < matrix.swizzle;
  const uint32_t expected = aligned ? 0 : matrix.start / kLine % kGroup;
  if (matrix.base_offset != expected) {
    problems.push_back({"smem_descriptor.base_offset", "base offset is " + std::to_string(matrix.base_offset) +
                                                           ", but start " + hex(matrix.start) + " lies " +
                                                           std::to_string(matrix.start % pattern) + " bytes into the " +
                                                           std::to_string(pattern) + "-byte swizzle pattern"});
  }
}

}  // namespace

SmemMatrix decode_wgmma_descriptor(uint64_t descriptor, Problems& problems) {
  SmemMatrix matrix = decode_common(descriptor, problems);
  expect_zero(descriptor, 46, 3, problems);
  expect_zero(descriptor, 52, 10, problems);
  constexpr uint32_t kSpans[] = {0, 128, 64, 32};
  matrix.swizzle = kSpans[field(descriptor, 62, 2)];
  return matrix;
}

SmemMatrix decode_tcgen05_descriptor(uint64_t descriptor, Problems& problems) {
  SmemMatrix matrix = decode_common(descriptor, problems);
  if (field(descriptor, 46, 3) != 1) {
    problems.push_back({"smem_descriptor.version", "bits 46-48 of " + hex(descriptor) + " must be 0b001"});
  }
  if (field(descriptor, 52, 1) != 0) {
    problems.push_back({"smem_descriptor.absolute_leading", "absolute leading addresses (bit 52) are not modelled"});
  }
  expect_zero(descriptor, 53, 8, problems);
  switch (field(descriptor, 61, 3)) {
    case 0:
      break;
    case 2:
      matrix.swizzle = 128;
      break;
    case 4:
      matrix.swizzle = 64;
      break;
    case 6:
      matrix.swizzle = 32;
      break;
    case 1:
      problems.push_back({"smem_descriptor.swizzle", "128-byte swizzle with 32-byte atoms is not modelled"});
      break;
    default:
      problems.push_back({"smem_descriptor.swizzle", "swizzle mode " + std::to_string(field(descriptor, 61, 3)) +
                                                         " of " + hex(descriptor) + " does not exist"});
  }
  return matrix;
}

void check_smem_matrix(const SmemMatrix& matrix, Major major, int rows, int k, int element_bits, Problems& problems) {
  const auto bytes = [&](int elements) { return static_cast<uint32_t>(elements * element_bits / 8); };
  if (matrix.swizzle != 0) check_swizzle_start(matrix, problems);
  const uint32_t span = matrix.swizzle == 0 ? kUnit : matrix.swizzle;
  const auto expect_step = [&](const char* name, const char* what, uint32_t step, bool needed) {
    if (needed && step < kGroup * span) {
      problems.push_back({name, std::string(what) + " offset of " + std::to_string(step) + " bytes: groups of 8 by " +
                                    std::to_string(span) + " bytes overlap"});
    }
  };
  if (major == Major::kK) {
    expect_step("smem_descriptor.stride", "stride", matrix.stride, rows > static_cast<int>(kGroup));
    if (matrix.swizzle == 0) {
      if (bytes(k) > kUnit && matrix.leading == 0) {
        problems.push_back({"smem_descriptor.leading", "leading offset is 0: the 16-byte columns coincide"});
      }
    } else if (matrix.start % matrix.swizzle + bytes(k) > matrix.swizzle) {
      problems.push_back({"smem_descriptor.row_end", "a row of " + std::to_string(bytes(k)) + " bytes from byte " +
                                                         std::to_string(matrix.start % matrix.swizzle) +
                                                         " leaves the " + std::to_string(matrix.swizzle) +
                                                         "-byte span"});
    }
    return;
  }
  const bool swizzled = matrix.swizzle != 0;
  const bool more_columns = k > static_cast<int>(kGroup);
  const bool more_rows = bytes(rows) > span;
  expect_step("smem_descriptor.stride", "stride", matrix.stride, swizzled ? more_columns : more_rows);
  expect_step("smem_descriptor.leading", "leading", matrix.leading, swizzled ? more_rows : more_columns);
}

uint32_t swizzle_address(uint32_t address, uint32_t span, uint32_t base_offset) {
  if (span == 0) return address;
  const uint32_t line = (address / kLine - base_offset) % kGroup;
  // The pattern repeats after 8 spans: 128-byte spans see all 8 lines, 64-byte spans 4, 32-byte spans 2.
  const uint32_t phase = line % (span / kUnit);
  return address ^ (phase * kUnit);
}

uint32_t element_address(const SmemMatrix& matrix, Major major, int row, int k, int element_bits) {
  const uint32_t span = matrix.swizzle == 0 ? kUnit : matrix.swizzle;
  const auto along = static_cast<uint32_t>((major == Major::kK ? k : row) * element_bits / 8);
  const auto across = static_cast<uint32_t>(major == Major::kK ? row : k);
  const uint32_t core = across % kGroup * span + along % span;
  const uint32_t group = across / kGroup, next_span = along / span;
  // K-major: rows step by `stride`. MN-major: swizzled columns do too, while without a swizzle they step by `leading`.
  const bool group_by_stride = major == Major::kK || matrix.swizzle != 0;
  const uint32_t group_step = group_by_stride ? matrix.stride : matrix.leading;
  const uint32_t span_step = group_by_stride ? matrix.leading : matrix.stride;
  // A swizzled K-major row may start inside its span and never leaves it.
  return swizzle_address(matrix.start + core + group * group_step + next_span * span_step, matrix.swizzle,
                         matrix.base_offset);
}

}  // namespace ptxrun::model
