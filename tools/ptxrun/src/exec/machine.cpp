#include "exec/machine.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "check/checker.h"

namespace ptxrun {
namespace {

constexpr uint32_t kMaxThreads = 1024;
constexpr Dim3 kMaxGrid{0x7FFFFFFF, 65535, 65535}, kMaxBlock{1024, 1024, 64};
constexpr uint32_t kMaxLocal = 512 << 10;
constexpr uint32_t kPortableCluster = 8, kMaxCluster = 16;
constexpr uint64_t kQuestionInterval = 1 << 20;  // instructions between two looks at Machine::interrupted

[[noreturn]] void refuse(const LaunchConfig& config, const std::string& reason) {
  throw std::invalid_argument("launch of " + config.kernel->name + ": " + reason);
}

uint64_t product(const uint32_t (&values)[3]) { return uint64_t{values[0]} * values[1] * values[2]; }

std::string text(const Dim3& extent) {
  return std::to_string(extent.x) + " x " + std::to_string(extent.y) + " x " + std::to_string(extent.z);
}

void check_extent(const LaunchConfig& config, const char* what, const Dim3& extent, const Dim3& most) {
  if (extent.count() == 0) refuse(config, std::string("empty ") + what);
  if (extent.x <= most.x && extent.y <= most.y && extent.z <= most.z) return;
  refuse(config, std::string("a ") + what + " of " + text(extent) + ": at most " + text(most));
}

void check_cluster(const LaunchConfig& config, const Options& options) {
  const uint64_t size = config.cluster.count();
  if (size == 0 || size > kMaxCluster) refuse(config, "a cluster of " + std::to_string(size) + " CTAs");
  if (size > kPortableCluster && !config.non_portable_cluster) {
    refuse(config, "a cluster of " + std::to_string(size) + " CTAs needs the attribute of non-portable sizes");
  }
  if (config.grid.x % config.cluster.x || config.grid.y % config.cluster.y || config.grid.z % config.cluster.z) {
    refuse(config, "the cluster does not divide the grid");
  }
  if (size > options.sms) refuse(config, "a cluster larger than the machine");
}

// What no SM has room for would wait for ever.
void check_resources(const LaunchConfig& config, const Options& options) {
  const uint64_t fixed = config.kernel->static_shared - kSharedBase, most = options.shared_per_sm - kSharedBase;
  if (fixed + config.dynamic_shared > most) {
    refuse(config, std::to_string(fixed) + " bytes of static and " + std::to_string(config.dynamic_shared) +
                       " of dynamic shared memory: at most " + std::to_string(most));
  }
  if (config.kernel->local_bytes > kMaxLocal) {
    refuse(config, std::to_string(config.kernel->local_bytes) + " bytes of local memory a thread: at most " +
                       std::to_string(kMaxLocal));
  }
  if (config.registers * config.block.count() > options.registers_per_sm) {
    refuse(config, std::to_string(config.registers) + " registers for each of " + std::to_string(config.block.count()) +
                       " threads: an SM has " + std::to_string(options.registers_per_sm));
  }
}

void check_shape(const LaunchConfig& config, const Options& options) {
  const Kernel& kernel = *config.kernel;
  check_extent(config, "grid", config.grid, kMaxGrid);
  check_extent(config, "block", config.block, kMaxBlock);
  const uint64_t threads = config.block.count();
  if (threads > kMaxThreads) refuse(config, std::to_string(threads) + " threads a CTA");
  if (product(kernel.maxntid) && threads > product(kernel.maxntid)) refuse(config, "more threads than .maxntid");
  if (product(kernel.reqntid) && threads != product(kernel.reqntid)) refuse(config, "not the threads of .reqntid");
  check_cluster(config, options);
  if (config.params.size() != kernel.param_bytes) {
    refuse(config, "the parameter block has " + std::to_string(kernel.param_bytes) + " bytes, not " +
                       std::to_string(config.params.size()));
  }
  check_resources(config, options);
}

// Dimensions of the kernel's .reqnctapercluster, if it has them, or those of the launch.
void settle_cluster(LaunchConfig& config) {
  const auto& required = config.kernel->cluster;
  if (product(required) == 0) return;
  const bool given = config.cluster.count() > 1;
  if (given &&
      (config.cluster.x != required[0] || config.cluster.y != required[1] || config.cluster.z != required[2])) {
    refuse(config, "not the cluster of .reqnctapercluster");
  }
  config.cluster = {required[0], required[1], required[2]};
}

FindingPlace place(const Site& site) {
  FindingPlace place;
  if (site.kernel != nullptr) place.kernel = site.kernel->name;
  if (site.instr != nullptr) {
    place.instruction = site.instr->source->text;
    place.line = site.instr->source->line;
  }
  place.launch = site.launch;
  place.cta = site.cta;
  place.warp = site.warp;
  place.lanes = site.lanes;
  return place;
}

}  // namespace

std::string Grid::Completion::describe() const {
  return "the end of launch " + std::to_string(grid->index) + " (" + std::to_string(grid->ctas_done) + " of " +
         std::to_string(grid->ctas()) + " CTAs done)";
}

Machine::Machine(Options options)
    : options(options), memory(*this), async(*this, options.schedule, options.seed), random_(options.seed) {
  checker = make_checker(*this, options.checks);
  for (uint32_t i = 0; i < options.sms; ++i) sms.emplace_back().index = i;
}

Machine::~Machine() = default;

uint32_t Machine::launch(LaunchConfig config) {
  settle_cluster(config);
  check_shape(config, options);
  if (config.cooperative && !all_fit(config)) refuse(config, "not all CTAs of the cooperative launch fit at once");
  auto grid = std::make_unique<Grid>();
  grid->machine = this;
  grid->index = static_cast<uint32_t>(grids.size());
  grid->config = std::move(config);
  grid->clusters = grid->ctas() / grid->config.cluster.count();
  grid->completion.grid = grid.get();
  grid->params.kind = Region::Kind::Param;
  grid->params.base = kParamWindow;
  grid->params.name = "parameters of launch " + std::to_string(grid->index);
  grid->params.readonly = grid->params.initialised = true;
  grid->params.data = grid->config.params.data();
  grid->params.bytes = grid->config.params.size();
  place_variables(*grid);
  if (grid->config.cooperative) grid->workspace = add_grid_workspace(grid->index);
  counters_.emplace_back().by_opcode.resize(grid->config.program->opcodes.size());
  grids.push_back(std::move(grid));
  return grids.back()->index;
}

// As cooperative groups expect it: a word with its size, a word for the barrier.
uint64_t Machine::add_grid_workspace(uint32_t launch) {
  constexpr uint32_t kWords[] = {8, 0};
  Region& region = memory.add_global(sizeof(kWords), "grid workspace of launch " + std::to_string(launch));
  std::memcpy(region.data, kWords, sizeof(kWords));
  region.initialised = true;
  checker->region_added(region);
  return region.base;
}

// Module variables live once in a machine, whichever launches use them.
void Machine::place_variables(Grid& grid) {
  const Program& program = *grid.config.program;
  for (uint32_t i = 0; i < program.variables.size(); ++i) {
    const ast::Variable& variable = *program.variables[i];
    const auto [entry, is_new] = variable_addresses_.try_emplace({&program, i});
    if (is_new) {
      Region& region = memory.add_global(std::max<uint64_t>(variable.bytes, 1), variable.name);
      std::fill(region.storage.begin(), region.storage.end(), uint8_t{0});
      std::copy(variable.init.begin(), variable.init.end(), region.storage.begin());
      region.initialised = true;
      region.readonly = variable.space == ast::StateSpace::Const;
      checker->region_added(region);
      entry->second = region.base;
    }
    grid.variable_address.push_back(entry->second);
  }
  for (uint32_t i = 0; i < program.variables.size(); ++i) {
    for (const ast::Symbol& symbol : program.variables[i]->symbols) {
      const auto target = std::find_if(program.variables.begin(), program.variables.end(),
                                       [&](const ast::Variable* other) { return other->name == symbol.name; });
      if (target == program.variables.end()) refuse(grid.config, "initialiser with an unknown name " + symbol.name);
      const uint64_t address = grid.variable_address[static_cast<size_t>(target - program.variables.begin())] +
                               static_cast<uint64_t>(symbol.offset);
      Region& region = *memory.find_global(grid.variable_address[i]);
      std::copy_n(reinterpret_cast<const uint8_t*>(&address), symbol.bytes, region.data + symbol.at);
    }
  }
}

void Machine::report(const char* code, const std::string& message, const Site& site, const Region* region,
                     uint64_t offset, const Site* other) {
  const Instr* other_instr = other != nullptr ? other->instr : nullptr;
  if (count_again(findings, code, site.instr, other_instr)) return;
  Finding finding;
  finding.code = code;
  finding.message = message;
  finding.place = place(site);
  finding.instr = site.instr;
  finding.other_instr = other_instr;
  if (other != nullptr) {
    finding.has_other = true;
    finding.other = place(*other);
  }
  if (region != nullptr) finding.buffer = region->name;
  finding.offset = offset;
  findings.push_back(std::move(finding));
  if (findings.size() >= options.max_findings) halted_ = true;
}

void Machine::halt(const std::string& reason) {
  if (halted_) return;
  halted_ = true;
  output += reason + "\n";
}

std::vector<uint32_t> Machine::take_registers(size_t words) {
  if (spare_registers_.empty()) return std::vector<uint32_t>(words);
  std::vector<uint32_t> registers = std::move(spare_registers_.back());
  spare_registers_.pop_back();
  registers.resize(words);
  return registers;
}

void Machine::tick(const Warp& warp, uint64_t instructions) {
  now_ += instructions;
  counters_[warp.cta.grid->index].instructions += instructions;
  instructions_ += instructions;
  if (instructions_ >= next_question_) {
    next_question_ = instructions_ + kQuestionInterval;
    if (interrupted && interrupted()) halted_ = true;
  }
  if (options.max_instructions == 0 || instructions_ <= options.max_instructions || halted_) return;
  report_limit(warp);
  halted_ = true;
}

void Machine::note_bytes_in_flight(Cta& cta, int64_t change) {
  cta.bytes_in_flight += static_cast<uint64_t>(change);
  cta.sm->bytes_in_flight += static_cast<uint64_t>(change);
  LaunchCounters& counters = counters_[cta.grid->index];
  counters.max_bytes_in_flight_cta = std::max(counters.max_bytes_in_flight_cta, cta.bytes_in_flight);
  counters.max_bytes_in_flight_sm = std::max(counters.max_bytes_in_flight_sm, cta.sm->bytes_in_flight);
}

void Machine::cta_launched_dependents(Cta& cta, Warp* warp) {
  const bool again = std::exchange(cta.launched_dependents, true);
  if (!again || warp != nullptr) checker->launched_dependents(cta, warp);
  if (again) return;
  ++cta.grid->ctas_launched_dependents;
}

}  // namespace ptxrun
