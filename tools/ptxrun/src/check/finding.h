// What a run reports: one entry for each cause (code, instruction, conflicting instruction), with the number of times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ptxrun {

struct Instr;

// The party of a finding, resolved to text so that a finding outlives the machine.
struct FindingPlace {
  std::string kernel;
  std::string instruction;
  int line = 0;
  uint32_t launch = 0, cta = 0, warp = 0, lanes = 0;
};

struct Finding {
  std::string code;  // one of kFindingCodes
  std::string message;
  FindingPlace place;
  bool has_other = false;
  FindingPlace other;
  std::string buffer;  // empty: no memory concerned
  uint64_t offset = 0;
  uint64_t count = 1;
  // Identity for de-duplication; not to be dereferenced after the run.
  const Instr* instr = nullptr;
  const Instr* other_instr = nullptr;
};

// Raises the count of the entry with this identity and returns true, or returns false: then a new one has to be built.
bool count_again(std::vector<Finding>& findings, const char* code, const Instr* instr, const Instr* other);

namespace code {
inline constexpr char kUninitialisedRegister[] = "uninitialised_register";
inline constexpr char kUninitialisedRead[] = "uninitialised_read";
inline constexpr char kOutOfBounds[] = "out_of_bounds";
inline constexpr char kMisaligned[] = "misaligned";
inline constexpr char kRace[] = "race";
inline constexpr char kMissingWait[] = "missing_wait";
inline constexpr char kOverwriteInFlight[] = "overwrite_in_flight";
inline constexpr char kReadOnlyPath[] = "read_only_path";
inline constexpr char kMissingProxyFence[] = "missing_proxy_fence";
inline constexpr char kMissingTcgen05Fence[] = "missing_tcgen05_fence";
inline constexpr char kMissingWgmmaFence[] = "missing_wgmma_fence";
inline constexpr char kRegisterInFlight[] = "register_in_flight";
inline constexpr char kInvalidMbarrier[] = "invalid_mbarrier";
inline constexpr char kOverArrival[] = "over_arrival";
inline constexpr char kTxMismatch[] = "tx_mismatch";
inline constexpr char kPhaseOverrun[] = "phase_overrun";
inline constexpr char kBarrierMismatch[] = "barrier_mismatch";
inline constexpr char kNotConverged[] = "not_converged";
inline constexpr char kDeadlock[] = "deadlock";
inline constexpr char kInstructionLimit[] = "instruction_limit";
inline constexpr char kPendingAtExit[] = "pending_at_exit";
inline constexpr char kTmemLifecycle[] = "tmem_lifecycle";
inline constexpr char kTmemAccess[] = "tmem_access";
inline constexpr char kBadDescriptor[] = "bad_descriptor";
inline constexpr char kBadOperand[] = "bad_operand";
inline constexpr char kRegisterPool[] = "register_pool";
inline constexpr char kCluster[] = "cluster";
inline constexpr char kTrap[] = "trap";
}  // namespace code

struct FindingCode {
  const char* name;
  const char* meaning;
};
// All codes; documentation and tests read this list.
extern const std::vector<FindingCode> kFindingCodes;

}  // namespace ptxrun
