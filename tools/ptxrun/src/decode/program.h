// A decoded module: kernels with their code, register file layout and memory needs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "decode/instruction.h"
#include "text/ast.h"

namespace ptxrun {

// Rows that hold a value from the start of a warp: special registers and addresses of variables.
enum class StartValue : uint8_t {
  TidX,
  TidY,
  TidZ,
  NtidX,
  NtidY,
  NtidZ,
  CtaidX,
  CtaidY,
  CtaidZ,
  NctaidX,
  NctaidY,
  NctaidZ,
  LaneId,
  WarpId,
  NwarpId,
  SmId,
  NsmId,
  GridId,
  LanemaskEq,
  LanemaskLe,
  LanemaskLt,
  LanemaskGe,
  LanemaskGt,
  ClusterIdX,
  ClusterIdY,
  ClusterIdZ,
  NclusterIdX,
  NclusterIdY,
  NclusterIdZ,
  ClusterCtaidX,
  ClusterCtaidY,
  ClusterCtaidZ,
  ClusterNctaidX,
  ClusterNctaidY,
  ClusterNctaidZ,
  ClusterCtarank,
  ClusterNctarank,
  IsExplicitCluster,
  DynamicSmemSize,
  TotalSmemSize,
  WarpSize,
  GridWorkspaceHigh,
  GridWorkspaceLow,
  SharedAddress,  // `value`: offset in the CTA's window
  GlobalAddress,  // `value`: index into Program::variables, plus `offset`
};

struct StartRow {
  StartValue kind;
  uint8_t bits;
  uint32_t row;
  int64_t value = 0;
  int64_t offset = 0;
};

struct ParamSlot {
  std::string name;
  uint32_t offset, bytes, align;
  std::string type;  // of the declaration, without the dot: u32, f32, b8
};

// Bytes of a thread's local memory that a call hands over: arguments to parameters, return values back.
struct LocalCopy {
  uint32_t from, to, bytes;
};

// Modifiers of a call, filled in by the builder: where the callee starts and what is copied before.
struct CallModifiers {
  uint32_t target = 0;
  uint32_t first_copy = 0, copies = 0;  // of Kernel::local_copies
};

struct Kernel {
  std::string name;
  int line = 0;
  std::vector<Instr> code;          // the entry's body, then those of the functions that it calls
  uint32_t rows = 0;                // register rows of a warp
  uint32_t predicates = 0;          // number 0 is always true
  std::vector<uint32_t> constants;  // rows x 32 words, shared by all warps
  std::vector<StartRow> start_rows;
  std::vector<ParamSlot> params;
  uint32_t param_bytes = 0;
  uint32_t static_shared = 0;  // bytes, from kSharedBase
  uint32_t dynamic_shared_align = 16;
  bool uses_dynamic_shared = false;
  uint32_t local_bytes = 0;  // a thread
  uint32_t maxntid[3] = {0, 0, 0};
  uint32_t reqntid[3] = {0, 0, 0};
  uint32_t cluster[3] = {0, 0, 0};
  uint32_t min_ctas = 0;
  uint32_t max_registers = 0;
  std::vector<LocalCopy> local_copies;
  std::vector<std::vector<uint32_t>> branch_lists;  // .branchtargets, as instruction indices
  std::vector<std::string> row_names;               // register name of a row, for findings

  // Storage behind Instr::operands and Instr::touched.
  std::vector<std::unique_ptr<Operand[]>> operand_blocks;
  std::vector<std::unique_ptr<uint32_t[]>> touched_blocks;
};

struct Opcode {
  std::string spelling;
  OpClass op_class;
};

struct Program {
  ast::Module module;
  std::vector<std::unique_ptr<Kernel>> kernels;  // those decoded so far
  std::vector<Opcode> opcodes;
  std::unordered_map<std::string, uint32_t> opcode_ids;  // by spelling
  std::vector<const ast::Variable*> variables;           // module-level .global and .const

  explicit Program(ast::Module module);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Decodes the kernel if it was not; nullptr if the module has none of this name. Throws PtxError.
  const Kernel* kernel(const std::string& name);
};

// One line of Program census: how often a spelling occurs and whether it can be executed.
struct CensusEntry {
  std::string spelling;
  uint32_t count;
  std::string problem;  // empty: modelled
};

std::vector<CensusEntry> census(const ast::Module& module);

// Parameters, limits and static shared memory of every entry of a module, without its code.
std::vector<std::unique_ptr<Kernel>> kernel_interfaces(const ast::Module& module);

}  // namespace ptxrun
