#include "check/finding.h"

namespace ptxrun {

bool count_again(std::vector<Finding>& findings, const char* code, const Instr* instr, const Instr* other) {
  for (Finding& finding : findings) {
    if (finding.instr == instr && finding.other_instr == other && finding.code == code) {
      ++finding.count;
      return true;
    }
  }
  return false;
}

const std::vector<FindingCode> kFindingCodes = {
    {code::kUninitialisedRegister, "a register is read before anything was written to it"},
    {code::kUninitialisedRead, "bytes of shared, tensor or global memory are read before anything was written to them"},
    {code::kOutOfBounds, "an access outside every allocation, across the end of one, or a write to a read-only buffer"},
    {code::kMisaligned, "an address that is not a multiple of what the instruction asks for"},
    {code::kRace, "two accesses, at least one a write, that nothing orders"},
    {code::kMissingWait, "the result of an asynchronous operation is used before its completion was observed"},
    {code::kOverwriteInFlight,
     "a write to bytes that an asynchronous operation, or a reader of the slot, may still use"},
    {code::kReadOnlyPath, "ld.global.nc of bytes that the same launch has written"},
    {code::kMissingProxyFence,
     "ordered accesses of the generic and the async proxy without a fence.proxy between them"},
    {code::kMissingTcgen05Fence,
     "tensor memory handed to other threads without tcgen05.fence before or after the handover"},
    {code::kMissingWgmmaFence, "wgmma reads registers that were written after the last wgmma.fence"},
    {code::kRegisterInFlight, "a register of a pending asynchronous operation is used"},
    {code::kInvalidMbarrier,
     "an mbarrier operation on bytes that hold no valid mbarrier, or an ordinary access to one that do"},
    {code::kOverArrival, "more arrivals in a phase than the mbarrier expects"},
    {code::kTxMismatch, "the transaction bytes of an mbarrier phase do not add up"},
    {code::kPhaseOverrun, "an mbarrier can enter the next phase but one before every waiter has seen its phase"},
    {code::kBarrierMismatch, "threads of one barrier disagree about its number of threads, or a warp arrives twice"},
    {code::kNotConverged,
     "lanes that a .sync or .aligned instruction needs never arrive, or one that its mask does not name does"},
    {code::kDeadlock, "no warp can run and nothing is pending"},
    {code::kInstructionLimit, "the run was stopped after max_instructions: an endless loop, or a limit too low"},
    {code::kPendingAtExit, "a CTA or grid ends while asynchronous operations, waiters or expected bytes are pending"},
    {code::kTmemLifecycle, "tensor memory used outside of its allocation, not freed, or freed in the wrong way"},
    {code::kTmemAccess, "a lane quadrant, column range or shape that the warp or instruction cannot access"},
    {code::kBadDescriptor, "a matrix, instruction or tensor-map descriptor with fields that are not allowed"},
    {code::kBadOperand, "an operand value outside of what the instruction allows"},
    {code::kRegisterPool, "setmaxnreg takes more registers than the CTA's pool has"},
    {code::kCluster, "an access to a CTA that is not in the cluster, has not started or has exited"},
    {code::kTrap, "the kernel executed trap"},
};

}  // namespace ptxrun
