// What the tcgen05 instructions share: ownership of tensor memory, the pipe of a CTA, pairs of CTAs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "check/checks.h"
#include "decode/decoder.h"
#include "exec/machine.h"

namespace ptxrun::ops {

constexpr int kTmemUnit = 32;  // columns of the smallest allocation

// Rectangle of tensor memory.
struct TmemRange {
  int lane = 0, lanes = 0;
  int column = 0, columns = 0;
};
std::string describe(const TmemRange& range);

// Tensor memory of an SM: which CTA owns a column.
struct TmemState : Extension<Sm>, WaitObject {
  struct Block {
    uint32_t column = 0, columns = 0;
    Cta* owner = nullptr;
    int cta_group = 1;
    Site site;  // of the allocation
  };

  explicit TmemState(Sm& sm);
  std::string describe() const override;  // of what a blocked allocation waits for

  // Start columns at which `columns` are free, ascending.
  std::vector<uint32_t> free_places(uint32_t columns) const;
  void allocate(const Block& block) { blocks.push_back(block); }
  // False if this is not exactly one allocation of the CTA.
  bool free(const Cta& cta, uint32_t column, uint32_t columns);
  bool owns(const Cta& cta, int column, int columns) const;

  uint32_t* lane(int lane) { return sm.tmem->cells[lane]; }

  Sm& sm;
  std::vector<Block> blocks;
};

// The tcgen05 side of a CTA.
struct Tcgen05Cta : Extension<Cta> {
  explicit Tcgen05Cta(Cta& cta);
  void on_end(Cta& cta) override;  // what was not deallocated

  OrderKey pipe;      // of mma, cp and commit
  int cta_group = 0;  // that the kernel's instructions name; 0: none so far
  bool relinquished = false;
};

// The instruction's group, 1 or 2: all instructions of a kernel name the same one, and a pair needs a peer. Returns
// false after a finding where it cannot be executed.
bool check_cta_group(Warp& warp, int cta_group, LaneMask lanes);
int take_cta_group(Decoder& d);
// CTAs that an instruction of the group works on: the executing one, or both of its pair, the even rank first.
std::vector<Cta*> group_of(Cta& cta, int cta_group);

// Whether the range lies in tensor memory that the CTA has allocated; a finding otherwise. `what`: the operand.
bool check_tmem(Warp& warp, Cta& cta, const TmemRange& range, const char* what, LaneMask lanes);

void announce_read(check::Issue& issue, Sm& sm, const TmemRange& range);
void announce_write(check::Issue& issue, Sm& sm, const TmemRange& range);

// The value that all lanes must have in common; a finding names `what` if they differ.
uint64_t uniform_value(Warp& warp, const Operand& op, LaneMask active, const char* what);

}  // namespace ptxrun::ops
