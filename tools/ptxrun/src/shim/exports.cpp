// What ptxrun/host_shim.py calls in a program that was linked with the shim.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "shim/device.h"
#include "shim/device_memory.h"
#include "shim/kernels.h"

using namespace ptxrun::shim;

namespace {

std::string hex(const std::vector<uint8_t>& bytes) {
  std::string text;
  char digits[3];
  for (const uint8_t byte : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

std::string list(const std::array<unsigned, 3>& values) {
  return "[" + std::to_string(values[0]) + "," + std::to_string(values[1]) + "," + std::to_string(values[2]) + "]";
}

std::string json(const LaunchRecord& launch) {
  std::string arguments;
  for (const auto& argument : launch.arguments) arguments += (arguments.empty() ? "\"" : ",\"") + hex(argument) + "\"";
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return "{\"kernel\":\"" + launch.kernel + "\",\"fat_binary\":" + std::to_string(launch.fat_binary) +
         ",\"grid\":" + list(launch.grid) + ",\"block\":" + list(launch.block) +
         ",\"cluster\":" + list(launch.cluster) + ",\"smem\":" + std::to_string(launch.smem_bytes) +
         ",\"pdl\":" + flag(launch.pdl) + ",\"cooperative\":" + flag(launch.cooperative) + ",\"args\":[" + arguments +
         "]}";
}

}  // namespace

#define PTXRUN_EXPORT extern "C" __attribute__((visibility("default")))

PTXRUN_EXPORT void ptxrun_set_device(int major, int minor, int sm_count) {
  Device::current() = {.major = major, .minor = minor, .sm_count = sm_count};
}

PTXRUN_EXPORT int ptxrun_fat_binaries() { return static_cast<int>(Program::instance().fat_binaries().size()); }

PTXRUN_EXPORT int ptxrun_modules(int fat_binary) {
  return static_cast<int>(Program::instance().fat_binaries()[fat_binary].size());
}

PTXRUN_EXPORT const char* ptxrun_module(int fat_binary, int index, int* arch, size_t* bytes) {
  const Module& module = Program::instance().fat_binaries()[fat_binary][index];
  *arch = module.arch;
  *bytes = module.ptx.size();
  return module.ptx.data();
}

// JSON list of the launches since the last call; valid until the next one.
PTXRUN_EXPORT const char* ptxrun_take_launches() {
  static std::string text;
  text = "[";
  for (const LaunchRecord& launch : launches()) text += (text.size() > 1 ? "," : "") + json(launch);
  text += "]";
  launches().clear();
  return text.c_str();
}

// Called when the program ends by exit() instead of returning from main(), before its statics are destroyed; nullptr:
// no longer.
PTXRUN_EXPORT void ptxrun_set_at_exit(void (*function)()) {
  static void (*at_exit)() = nullptr;
  static const int registered = std::atexit([] {
    if (at_exit != nullptr) at_exit();
  });
  (void)registered;
  at_exit = function;
}

// Called whenever the program could see the results of launches.
PTXRUN_EXPORT void ptxrun_set_execute(void (*execute)()) { set_execute(execute); }

// JSON list of [address, bytes, whether the host has written]; valid until the next call.
PTXRUN_EXPORT const char* ptxrun_allocations() {
  static std::string text;
  text = "[";
  for (const Allocation& allocation : DeviceMemory::instance().allocations()) {
    text += (text.size() > 1 ? ",[" : "[") + std::to_string(reinterpret_cast<uint64_t>(allocation.data)) + "," +
            std::to_string(allocation.bytes) + (allocation.written ? ",true]" : ",false]");
  }
  text += "]";
  return text.c_str();
}
