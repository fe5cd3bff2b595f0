// Warpgroup MMA, A in registers or in shared memory.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions
#pragma once

#include <cstdint>

namespace cake_moe::ptx {

// Orders earlier register writes before the next wgmma.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Until at most kPending committed groups are still running.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Descriptor of a K-major operand in the 128-byte swizzle: rows of 128 bytes, eight of them 1024 bytes apart from the
// next eight. The address must lie in a 1024-byte aligned atom; steps of K = 16 fp16 add 32 bytes.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-shared-memory-layout-matrix-descriptor
__device__ __forceinline__ uint64_t swizzle128_descriptor(uint32_t shared_address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kStrideBytes = uint64_t{1024 >> 4} << 32;
  constexpr uint64_t kLeadingBytes = uint64_t{1} << 16;  // unused by this layout
  return kSwizzle128 | kStrideBytes | kLeadingBytes | (shared_address & 0x3FFFF) >> 4;
}

// d += a * b for an m64 x kN x k16 tile: a fp16 fragments, b fp16 from shared memory, d fp32 fragments.
template <int kN>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[kN / 2], const uint32_t (&a)[4], uint64_t b);

// The same with a from shared memory, by its descriptor.
template <int kN>
__device__ __forceinline__ void wgmma_m64k16(float (&d)[kN / 2], uint64_t a, uint64_t b);

// Operand lists: accumulator placeholders and the constraints that match them.
#define CAKE_D4 "%0,%1,%2,%3"
#define CAKE_D8 CAKE_D4 ",%4,%5,%6,%7"
#define CAKE_D12 CAKE_D8 ",%8,%9,%10,%11"
#define CAKE_D16 CAKE_D12 ",%12,%13,%14,%15"
#define CAKE_D20 CAKE_D16 ",%16,%17,%18,%19"
#define CAKE_D24 CAKE_D20 ",%20,%21,%22,%23"
#define CAKE_D28 CAKE_D24 ",%24,%25,%26,%27"
#define CAKE_D32 CAKE_D28 ",%28,%29,%30,%31"
#define CAKE_D36 CAKE_D32 ",%32,%33,%34,%35"
#define CAKE_D40 CAKE_D36 ",%36,%37,%38,%39"
#define CAKE_D44 CAKE_D40 ",%40,%41,%42,%43"
#define CAKE_D48 CAKE_D44 ",%44,%45,%46,%47"
#define CAKE_D52 CAKE_D48 ",%48,%49,%50,%51"
#define CAKE_D56 CAKE_D52 ",%52,%53,%54,%55"
#define CAKE_D60 CAKE_D56 ",%56,%57,%58,%59"
#define CAKE_D64 CAKE_D60 ",%60,%61,%62,%63"
#define CAKE_F4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define CAKE_A4 CAKE_F4(0)
#define CAKE_A8 CAKE_A4, CAKE_F4(4)
#define CAKE_A12 CAKE_A8, CAKE_F4(8)
#define CAKE_A16 CAKE_A12, CAKE_F4(12)
#define CAKE_A20 CAKE_A16, CAKE_F4(16)
#define CAKE_A24 CAKE_A20, CAKE_F4(20)
#define CAKE_A28 CAKE_A24, CAKE_F4(24)
#define CAKE_A32 CAKE_A28, CAKE_F4(28)
#define CAKE_A36 CAKE_A32, CAKE_F4(32)
#define CAKE_A40 CAKE_A36, CAKE_F4(36)
#define CAKE_A44 CAKE_A40, CAKE_F4(40)
#define CAKE_A48 CAKE_A44, CAKE_F4(44)
#define CAKE_A52 CAKE_A48, CAKE_F4(48)
#define CAKE_A56 CAKE_A52, CAKE_F4(52)
#define CAKE_A60 CAKE_A56, CAKE_F4(56)
#define CAKE_A64 CAKE_A60, CAKE_F4(60)

#define CAKE_WGMMA(n, registers, a0, a1, a2, a3, desc)                                                                \
  template <>                                                                                                         \
  __device__ __forceinline__ void wgmma_m64k16<n>(float (&d)[n / 2], const uint32_t (&a)[4], uint64_t b) {            \
    asm volatile(                                                                                                     \
        "{\n\t.reg .pred accumulate;\n\tsetp.ne.b32 accumulate, 1, 0;\n\t"                                            \
        "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" CAKE_D##registers                                  \
        "}, {%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "}, %" #desc ", accumulate, 1, 1, 0;\n\t}"                             \
        : CAKE_A##registers                                                                                           \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                        \
  }                                                                                                                   \
  template <>                                                                                                         \
  __device__ __forceinline__ void wgmma_m64k16<n>(float (&d)[n / 2], uint64_t a, uint64_t b) {                        \
    asm volatile(                                                                                                     \
        "{\n\t.reg .pred accumulate;\n\tsetp.ne.b32 accumulate, 1, 0;\n\t"                                            \
        "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" CAKE_D##registers "}, %" #a0 ", %" #a1             \
                                                                                     ", accumulate, 1, 1, 0, 0;\n\t}" \
        : CAKE_A##registers                                                                                           \
        : "l"(a), "l"(b));                                                                                            \
  }

CAKE_WGMMA(8, 4, 4, 5, 6, 7, 8)
CAKE_WGMMA(16, 8, 8, 9, 10, 11, 12)
CAKE_WGMMA(24, 12, 12, 13, 14, 15, 16)
CAKE_WGMMA(32, 16, 16, 17, 18, 19, 20)
CAKE_WGMMA(40, 20, 20, 21, 22, 23, 24)
CAKE_WGMMA(48, 24, 24, 25, 26, 27, 28)
CAKE_WGMMA(56, 28, 28, 29, 30, 31, 32)
CAKE_WGMMA(64, 32, 32, 33, 34, 35, 36)
CAKE_WGMMA(72, 36, 36, 37, 38, 39, 40)
CAKE_WGMMA(80, 40, 40, 41, 42, 43, 44)
CAKE_WGMMA(88, 44, 44, 45, 46, 47, 48)
CAKE_WGMMA(96, 48, 48, 49, 50, 51, 52)
CAKE_WGMMA(104, 52, 52, 53, 54, 55, 56)
CAKE_WGMMA(112, 56, 56, 57, 58, 59, 60)
CAKE_WGMMA(120, 60, 60, 61, 62, 63, 64)
CAKE_WGMMA(128, 64, 64, 65, 66, 67, 68)

#undef CAKE_WGMMA
#undef CAKE_F4
#undef CAKE_A4
#undef CAKE_D4
#undef CAKE_A8
#undef CAKE_D8
#undef CAKE_A12
#undef CAKE_D12
#undef CAKE_A16
#undef CAKE_D16
#undef CAKE_A20
#undef CAKE_D20
#undef CAKE_A24
#undef CAKE_D24
#undef CAKE_A28
#undef CAKE_D28
#undef CAKE_A32
#undef CAKE_D32
#undef CAKE_A36
#undef CAKE_D36
#undef CAKE_A40
#undef CAKE_D40
#undef CAKE_A44
#undef CAKE_D44
#undef CAKE_A48
#undef CAKE_D48
#undef CAKE_A52
#undef CAKE_D52
#undef CAKE_A56
#undef CAKE_D56
#undef CAKE_A60
#undef CAKE_D60
#undef CAKE_A64
#undef CAKE_D64

}  // namespace cake_moe::ptx
