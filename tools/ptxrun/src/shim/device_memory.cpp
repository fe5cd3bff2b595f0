// Memory, streams and events of the CUDA runtime. Every call that the host could see a result through executes the
// recorded launches first; time does not pass.
#include "shim/device_memory.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

#include "shim/device.h"

namespace ptxrun::shim {
namespace {

constexpr size_t kAlignment = 512;
constexpr int kPoison = 0xfb;

Execute execute_function = nullptr;

void note_write(const void* target) {
  if (Allocation* allocation = DeviceMemory::instance().find(target)) allocation->written = true;
}

}  // namespace

DeviceMemory& DeviceMemory::instance() {
  static auto* const memory = new DeviceMemory;
  return *memory;
}

void* DeviceMemory::allocate(size_t bytes) {
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) return nullptr;
  std::memset(data, kPoison, rounded);
  by_address_[reinterpret_cast<uint64_t>(data)] = {static_cast<uint8_t*>(data), bytes, false};
  return data;
}

bool DeviceMemory::free(void* address) {
  if (by_address_.erase(reinterpret_cast<uint64_t>(address)) == 0) return false;
  std::free(address);
  return true;
}

Allocation* DeviceMemory::find(const void* address) {
  auto after = by_address_.upper_bound(reinterpret_cast<uint64_t>(address));
  if (after == by_address_.begin()) return nullptr;
  Allocation& allocation = (--after)->second;
  return address < allocation.data + allocation.bytes ? &allocation : nullptr;
}

std::vector<Allocation> DeviceMemory::allocations() const {
  std::vector<Allocation> all;
  for (const auto& entry : by_address_) all.push_back(entry.second);
  return all;
}

void set_execute(Execute execute) { execute_function = execute; }

void execute_pending() {
  if (execute_function != nullptr && !launches().empty()) execute_function();
}

}  // namespace ptxrun::shim

using namespace ptxrun::shim;

extern "C" {

cudaError_t cudaMalloc(void** address, size_t bytes) {
  *address = bytes == 0 ? nullptr : DeviceMemory::instance().allocate(bytes);
  return bytes == 0 || *address != nullptr ? cudaSuccess : status(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* address) {
  execute_pending();
  return address == nullptr || DeviceMemory::instance().free(address) ? cudaSuccess : status(cudaErrorInvalidValue);
}
cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind) {
  execute_pending();
  std::memcpy(target, source, bytes);
  note_write(target);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(target, source, bytes, kind);
}
cudaError_t cudaMemset(void* target, int value, size_t bytes) {
  execute_pending();
  std::memset(target, value, bytes);
  note_write(target);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t) {
  return cudaMemset(target, value, bytes);
}

cudaError_t cudaDeviceSynchronize() {
  execute_pending();
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaDeviceSynchronize(); }
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
// All streams are one: what is waited for has been issued before.
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = nullptr;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaDeviceSynchronize(); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;
  return cudaSuccess;
}

}  // extern "C"
