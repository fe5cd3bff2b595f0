# Every source file of both products, by role. A new file is one line here.

set(CAKE_PLAN_SOURCES
  src/plan/plan.cpp
  src/plan/tables.cpp
  src/plan/workspace.cpp)

set(CAKE_BINDINGS_SOURCES
  src/bindings/argument.cpp
  src/bindings/build_config.cpp
  src/bindings/exports.cpp
  src/bindings/fused_moe.cpp
  src/bindings/gpu_backend.cpp
  src/bindings/ops.cpp
  src/bindings/prepared.cpp
  src/bindings/quantize.cpp
  src/bindings/torch_cuda.cpp
  src/bindings/validate.cpp
  src/bindings/values.cpp
  src/bindings/workspace.cpp)

set(CAKE_CPU_SOURCES
  src/kernels/cpu/backend.cpp
  src/kernels/cpu/fc1.cpp
  src/kernels/cpu/fc2.cpp
  src/kernels/cpu/finalize.cpp
  src/kernels/cpu/isa.cpp
  src/kernels/cpu/isa_portable.cpp
  src/kernels/cpu/quantize.cpp
  src/kernels/cpu/route.cpp)

# One file an instruction set; run-time choice keeps each from running elsewhere. x86 only.
set(CAKE_CPU_AVX2_SOURCES src/kernels/cpu/isa_avx2.cpp)
set(CAKE_CPU_AVX512_SOURCES src/kernels/cpu/isa_avx512.cpp)

set(CAKE_GPU_SOURCES
  src/kernels/common/driver.cpp
  src/kernels/common/launch.cpp
  src/kernels/common/tensor_map.cpp
  src/kernels/finalize/args.cpp)

# Host code of the sm_90a backend.
set(CAKE_SM90_SOURCES
  src/kernels/sm90/backend.cpp)

# Host code of the sm_100a and sm_103a backend.
set(CAKE_SM100_SOURCES
  src/kernels/sm100/backend.cpp)

# CUDA code: cake_cuda_kernels(<folder of src/kernels> KERNELS <entry points> ARCHS <archs> SOURCES <files>)
macro(cake_declare_cuda_kernels)
  cake_cuda_kernels(common
    ARCHS 90a 100a 103a
    SOURCES src/kernels/common/device.cu)
  cake_cuda_kernels(quantize
    KERNELS cake_moe_quantize
    ARCHS 90a 100a 103a
    SOURCES src/kernels/quantize/launch.cu)
  cake_cuda_kernels(prologue
    KERNELS cake_moe_prologue
    ARCHS 90a 100a 103a
    SOURCES src/kernels/prologue/launch.cu)
  cake_cuda_kernels(finalize
    KERNELS cake_moe_finalize cake_moe_finalize_ring
    ARCHS 100a 103a
    SOURCES src/kernels/finalize/launch.cu)
  cake_cuda_kernels(sm90
    KERNELS cake_moe_sm90_experts cake_moe_sm90_fc1 cake_moe_sm90_fc2 cake_moe_sm90_routed_fc1
    ARCHS 90a
    SOURCES
      src/kernels/sm90/experts/launch.cu
      src/kernels/sm90/fc1/launch.cu
      src/kernels/sm90/fc2/launch.cu
      src/kernels/sm90/routed_fc1/launch.cu)
  cake_cuda_kernels(sm100
    KERNELS cake_moe_sm100_experts
    ARCHS 100a 103a
    SOURCES src/kernels/sm100/experts/launch.cu)
endmacro()

set(CAKE_PYTHON_SOURCES
  ${CAKE_PLAN_SOURCES}
  src/bindings/module.cpp)
