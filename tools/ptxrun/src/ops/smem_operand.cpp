#include "ops/smem_operand.h"

#include <cstring>

#include "exec/warp.h"

namespace ptxrun::ops {
namespace {

check::Layout layout_of(const model::SmemMatrix& matrix) {
  switch (matrix.swizzle) {
    case 32:
      return check::Layout::Swizzle32;
    case 64:
      return check::Layout::Swizzle64;
    case 128:
      return check::Layout::Swizzle128;
    default:
      return check::Layout::Linear;
  }
}

}  // namespace

SmemOperand::SmemOperand(const model::SmemMatrix& matrix, model::Major major, int first_row, int rows, int k,
                         int element_bits)
    : matrix_(matrix), major_(major), first_row_(first_row), rows_(rows), k_(k), element_bits_(element_bits) {}

template <class F>
void SmemOperand::for_units(F&& f) const {
  const bool k_major = major_ == model::Major::kK;
  const int across = k_major ? rows_ : k_;
  const int along = k_major ? k_ : rows_;
  for (int i = 0; i < across; ++i) {
    for (int j = 0; j < along; j += unit_elements()) {
      const int row = k_major ? i : j, k = k_major ? j : i;
      f(model::element_address(matrix_, major_, first_row_ + row, k, element_bits_), row, k);
    }
  }
}

void SmemOperand::announce(check::Issue& issue, Region& shared) const {
  issue.set_layout(layout_of(matrix_));
  uint64_t begin = 0, end = 0;
  const auto flush = [&] {
    if (begin < end && end <= shared.bytes) issue.read(shared, begin, end - begin);
  };
  for_units([&](uint64_t address, int, int) {
    if (address == end) {
      end += kUnitBytes;
    } else if (address + kUnitBytes == begin) {
      begin = address;
    } else {
      flush();
      begin = address;
      end = address + kUnitBytes;
    }
  });
  flush();
}

void SmemOperand::fetch(Machine& machine, Region& shared, const Site& site, uint16_t* elements) const {
  const Access access{.kind = Access::Kind::Read, .proxy = Proxy::Async, .site = &site};
  const int row_step = major_ == model::Major::kK ? 1 : k_;  // between neighbours of a unit
  const int per_unit = unit_elements();
  for_units([&](uint64_t address, int row, int k) {
    const uint8_t* bytes = machine.memory.touch(access, shared, address, kUnitBytes);
    uint16_t* to = elements + row * k_ + k;
    for (int i = 0; i < per_unit; ++i) {
      uint16_t value = 0;
      if (bytes != nullptr) std::memcpy(&value, bytes + i * element_bits_ / 8, static_cast<size_t>(element_bits_) / 8);
      to[i * row_step] = value;
    }
  });
}

void SmemOperand::fetch_packed(Machine& machine, Region& shared, const Site& site, uint8_t* bytes) const {
  const Access access{.kind = Access::Kind::Read, .proxy = Proxy::Async, .site = &site};
  for_units([&](uint64_t address, int row, int k) {
    uint8_t* to = bytes + (row * k_ + k) * element_bits_ / 8;
    if (const uint8_t* from = machine.memory.touch(access, shared, address, kUnitBytes); from != nullptr) {
      std::memcpy(to, from, kUnitBytes);
    } else {
      std::memset(to, 0, kUnitBytes);
    }
  });
}

void report_problems(Warp& warp, const model::Problems& problems, LaneMask lanes) {
  for (const model::Problem& problem : problems) {
    warp.report(code::kBadDescriptor, std::string(problem.name) + ": " + problem.detail, lanes);
  }
}

}  // namespace ptxrun::ops
