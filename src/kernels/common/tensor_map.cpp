#include "kernels/common/tensor_map.h"

#include <cudaTypedefs.h>

#include "kernels/common/driver.h"

namespace cake_moe {

const char* encode_byte_map(CUtensorMap* map, const uint8_t* base, int64_t row_bytes, int64_t rows, int box_bytes,
                            int box_rows) {
  static const auto encode =
      reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(find_driver_function("cuTensorMapEncodeTiled", 12000));
  if (encode == nullptr) return "the CUDA driver has no cuTensorMapEncodeTiled";
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(row_bytes), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(row_bytes)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_bytes), static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  const CUtensorMapSwizzle swizzle = box_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B;
  const CUresult status = call_driver([&] {
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<uint8_t*>(base), sizes, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  });
  return status == CUDA_SUCCESS ? nullptr : "cuTensorMapEncodeTiled refused the tensor";
}

}  // namespace cake_moe
