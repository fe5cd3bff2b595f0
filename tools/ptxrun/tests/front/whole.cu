// A whole program: two dependent launches, a copy back, its own verdict. With an argument it reads memory that nobody
// wrote. A second one is the status of an exit() in the place of main()'s return; 0: with a launch pending that reads
// memory that nobody wrote.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void twice(const int* in, int* out, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = 2 * in[i];
}

int main(int argc, char** argv) {
  constexpr int kCount = 1000;
  std::vector<int> values(kCount, 7), result(kCount, 0);
  int *in = nullptr, *middle = nullptr, *out = nullptr;
  for (int** pointer : {&in, &middle, &out}) {
    if (cudaMalloc(reinterpret_cast<void**>(pointer), kCount * sizeof(int)) != cudaSuccess) return 3;
  }
  if (argc == 1 || argv[1][0] != 'x') cudaMemcpy(in, values.data(), kCount * sizeof(int), cudaMemcpyHostToDevice);
  twice<<<(kCount + 127) / 128, 128>>>(in, middle, kCount);
  twice<<<(kCount + 127) / 128, 128>>>(middle, out, kCount);
  cudaMemcpy(result.data(), out, kCount * sizeof(int), cudaMemcpyDeviceToHost);
  if (argc > 2) {
    int* fresh = nullptr;
    if (cudaMalloc(reinterpret_cast<void**>(&fresh), kCount * sizeof(int)) != cudaSuccess) return 3;
    const int status = std::atoi(argv[2]);
    if (status == 0) twice<<<1, 128>>>(fresh, out, 128);
    std::exit(status);
  }
  for (int* pointer : {in, middle, out}) cudaFree(pointer);
  int wrong = 0;
  for (const int value : result) wrong += value != 28;
  std::printf("%s: %s, %d wrong\n", argv[0] == nullptr ? "?" : "whole", wrong == 0 ? "passed" : "failed", wrong);
  return wrong == 0 ? 0 : 4;
}
