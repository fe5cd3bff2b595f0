#include "shim/kernels.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ptxrun::shim {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1, kContainerMagic = 0xba55ed50;
constexpr uint16_t kPtx = 1;

struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const uint8_t* container;
  const void* unused;
};

struct Container {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t payload_bytes;
};

// The fields that precede the entry's text; the rest of the header is skipped by its size.
struct Entry {
  uint16_t kind;
  uint16_t version;
  uint32_t header_bytes;
  uint64_t payload_bytes;
  uint8_t unused[12];
  uint32_t arch;
};

[[noreturn]] void fail(const char* why) {
  std::fprintf(stderr, "ptxrun: %s\n", why);
  std::abort();
}

template <typename T>
T read(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

std::vector<Module> read_container(const uint8_t* at) {
  const auto container = read<Container>(at);
  if (container.magic != kContainerMagic) fail("the fat binary has an unknown form");
  std::vector<Module> modules;
  const uint8_t* const end = at + container.header_bytes + container.payload_bytes;
  for (at += container.header_bytes; at < end;) {
    const auto entry = read<Entry>(at);
    if (entry.kind == kPtx) {
      const char* text = reinterpret_cast<const char*>(at + entry.header_bytes);
      const std::string_view ptx(text, strnlen(text, entry.payload_bytes));
      if (ptx.find(".version") == ptx.npos) fail("the PTX is compressed: compile with nvcc --compress-mode=none");
      modules.push_back({static_cast<int>(entry.arch), ptx});
    }
    at += entry.header_bytes + entry.payload_bytes;
  }
  return modules;
}

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }

// Text between the parentheses of the entry's parameter list.
std::string_view parameter_list(std::string_view ptx, const std::string& kernel) {
  const std::string entry = ".entry " + kernel;
  for (size_t at = ptx.find(entry); at != ptx.npos; at = ptx.find(entry, at + 1)) {
    const size_t after = at + entry.size();
    if (is_name(ptx[after])) continue;
    const size_t open = ptx.find_first_not_of(" \t\n", after);
    if (ptx[open] != '(') return {};
    return ptx.substr(open + 1, ptx.find(')', open) - open - 1);
  }
  fail("a kernel is not in its module");
}

// ".param .align 8 .b8 name[88]" or ".param .u64 .ptr .global .align 16 name": the scalar type times the array length.
size_t declared_bytes(std::string_view declaration) {
  size_t bits = 0;
  for (size_t at = declaration.find('.'); at != declaration.npos; at = declaration.find('.', at + 1)) {
    const std::string_view type = declaration.substr(at + 1);
    const bool is_type =
        type.size() > 1 && std::strchr("busf", type[0]) && std::isdigit(static_cast<unsigned char>(type[1]));
    if (is_type) bits = std::strtoul(type.data() + 1, nullptr, 10);
  }
  const size_t bracket = declaration.find('[');
  const size_t count = bracket == declaration.npos ? 1 : std::strtoul(declaration.data() + bracket + 1, nullptr, 10);
  return bits / 8 * count;
}

}  // namespace

Program& Program::instance() {
  // Never destroyed, here and in the rest of the shim: a program's own statics outlive what they make on first use.
  static auto* const program = new Program;
  return *program;
}

size_t Program::add_fat_binary(const void* wrapper) {
  const auto header = read<Wrapper>(static_cast<const uint8_t*>(wrapper));
  if (header.magic != kWrapperMagic) fail("the fat binary's wrapper has an unknown form");
  fat_binaries_.push_back(read_container(header.container));
  return fat_binaries_.size() - 1;
}

void Program::add_kernel(size_t fat_binary, const void* host_function, const char* name) {
  kernels_[host_function] = {.name = name, .fat_binary = fat_binary};
}

Kernel* Program::find(const void* host_function) {
  const auto found = kernels_.find(host_function);
  return found == kernels_.end() ? nullptr : &found->second;
}

const Module* Program::module_of(const Kernel& kernel, int arch) const {
  for (const Module& module : fat_binaries_[kernel.fat_binary]) {
    if (module.arch == arch) return &module;
  }
  return nullptr;
}

std::vector<size_t> parameter_sizes(std::string_view ptx, const std::string& kernel) {
  std::string_view list = parameter_list(ptx, kernel);
  std::vector<size_t> sizes;
  while (list.find(".param") != list.npos) {
    const size_t comma = list.find(',');
    sizes.push_back(declared_bytes(list.substr(0, comma)));
    list = comma == list.npos ? std::string_view{} : list.substr(comma + 1);
  }
  return sizes;
}

}  // namespace ptxrun::shim
