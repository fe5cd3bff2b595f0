"""NVFP4 codecs and the layout of prepared weights, in plain PyTorch.

Everything here is exact, vectorised and needs no native library. An e2m1 code is
``sign << 3 | index into {0, .5, 1, 1.5, 2, 3, 4, 6}``; two codes share a byte along K, the even element in the low
nibble. One e4m3 scale covers 16 consecutive elements of K.

``canonical`` means the order of the model: FC1 rows ``[up; gate]``, FC2 rows in output order, scales ``[rows, K/16]``.
``prepared`` means the order of the operator: permuted rows, scales in the 128x4 interleave.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Kimi-K3 on one rank of an 8-way tensor-parallel group; equal to src/plan/problem.h.
HIDDEN = 3584
INTERMEDIATE = 384
EXPERTS = 896
TOP_K = 16
MAX_TOKENS = 16384
TENSOR_PARALLEL = 8
GROUP = 16

FC1_ROWS = 2 * INTERMEDIATE
FC1_ROW_BYTES = HIDDEN // 2
FC1_GROUPS = HIDDEN // GROUP
FC2_ROWS = HIDDEN
FC2_ROW_BYTES = INTERMEDIATE // 2
FC2_GROUPS = INTERMEDIATE // GROUP

DEFAULT_BETA = 4.0
DEFAULT_LINEAR_BETA = 25.0

E2M1_MAX = 6.0
E4M3_MAX = 448.0
E4M3_NAN = 0x7F


def _e4m3_table() -> Tensor:
    exponents = [max(code >> 3, 1) for code in range(128)]
    magnitudes = [
        ((code & 7) + 8 * (code > 7)) * 2.0 ** (e - 10) for code, e in zip(range(128), exponents, strict=True)
    ]
    magnitudes[E4M3_NAN] = math.nan
    return torch.tensor(magnitudes + [-m for m in magnitudes], dtype=torch.float32, device="cpu")


# Built on import, with dtype and device: a first use under a fake-tensor mode, a default device or a default dtype
# would leave its kind of tensor here for good.
_E2M1_MAGNITUDES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
_E2M1_VALUES = torch.tensor(
    _E2M1_MAGNITUDES + [-magnitude for magnitude in _E2M1_MAGNITUDES], dtype=torch.float32, device="cpu"
)
# The two values of every packed byte, complex [256], so that one look-up fetches both.
_E2M1_PAIRS = torch.complex(_E2M1_VALUES.repeat(16), _E2M1_VALUES.repeat_interleave(16))
_E4M3_VALUES = _e4m3_table()
# Where the nearest of two neighbouring codes changes; exact in float32 and float64.
_E2M1_MIDPOINTS = (_E2M1_VALUES[1:8] + _E2M1_VALUES[:7]) / 2
_E4M3_MIDPOINTS = (_E4M3_VALUES[1:E4M3_NAN] + _E4M3_VALUES[: E4M3_NAN - 1]) / 2


def _names(*dtypes: torch.dtype) -> str:
    return " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)


def _look_up(table: Tensor, codes: Tensor) -> Tensor:
    return table.to(codes.device).index_select(0, codes.reshape(-1).int()).view(codes.shape)


def _nearest_code(magnitude: Tensor, midpoints: Tensor) -> Tensor:
    """Index of the nearest value; a tie goes to the even code. Above the last midpoint this saturates."""
    midpoints = midpoints.to(magnitude)
    below = torch.bucketize(magnitude, midpoints, out_int32=True)
    above = torch.bucketize(magnitude, midpoints, out_int32=True, right=True)
    return torch.where(below % 2 == 0, below, above)


def encode_e2m1(x: Tensor) -> Tensor:
    """e2m1 codes (uint8, 0..15, one a byte) of float values of any shape.

    Round to nearest, ties to the even code, saturating at +-6, the sign of zero kept. NaN gives +6, as
    ``cvt.rn.satfinite.e2m1x2.f32`` does.
    """
    code = _nearest_code(x.abs(), _E2M1_MIDPOINTS) + 8 * torch.signbit(x)
    return torch.where(x.isnan(), 7, code).to(torch.uint8)


def decode_e2m1(codes: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Values of e2m1 codes (uint8, 0..15), same shape; exact in every float dtype."""
    return _look_up(_E2M1_VALUES.to(dtype), codes)


def encode_e4m3(x: Tensor) -> Tensor:
    """e4m3 codes (uint8) of float values of any shape.

    Round to nearest even, saturating at +-448 (infinities too), the sign kept. NaN gives 0x7F.
    """
    code = _nearest_code(x.abs(), _E4M3_MIDPOINTS) + 128 * torch.signbit(x)
    return torch.where(x.isnan(), E4M3_NAN, code).to(torch.uint8)


def decode_e4m3(codes: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Values of e4m3 codes (uint8 or float8_e4m3fn), same shape; exact. 0x7F and 0xFF are NaN."""
    return _look_up(_E4M3_VALUES.to(dtype), codes.view(torch.uint8))


def pack_nibbles(codes: Tensor) -> Tensor:
    """uint8 codes ``[..., K]`` (0..15) -> packed bytes ``[..., K/2]``, the even element in the low nibble."""
    return codes[..., 0::2] | codes[..., 1::2] << 4


def unpack_nibbles(packed: Tensor) -> Tensor:
    """Inverse of :func:`pack_nibbles`: uint8 ``[..., K/2]`` -> codes ``[..., K]``."""
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)


def dequantize_nvfp4(
    packed: Tensor, scales: Tensor, decode_scale: float | Tensor = 1.0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Values of NVFP4 data in canonical order.

    Args:
        packed: uint8 ``[..., K/2]``, two e2m1 codes a byte.
        scales: uint8 or float8_e4m3fn ``[..., K/16]``, linear.
        decode_scale: factor on every value, the inverse of the encode scale of ``quantize_nvfp4``; a number, or a
            tensor that broadcasts against ``[..., K]``.
        dtype: torch.float32 or torch.float64; e2m1 * e4m3 is exact in both.

    Returns:
        ``[..., K]``. A block whose scale is NaN is NaN.

    Raises:
        TypeError: packed or scales is no tensor.
        ValueError: the shapes do not belong together, or another dtype than the ones above.

    Source: NVIDIA's NVFP4 format as Model-Optimizer exports it.
    """
    for argument, value, dtypes in (
        ("packed", packed, (torch.uint8,)),
        ("scales", scales, (torch.uint8, torch.float8_e4m3fn)),
    ):
        if not isinstance(value, Tensor):
            raise TypeError(f"dequantize_nvfp4: {argument} must be a torch.Tensor, got {type(value).__name__}")
        if value.dtype not in dtypes:
            raise ValueError(f"dequantize_nvfp4: {argument} must be {_names(*dtypes)}, got {_names(value.dtype)}")
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dequantize_nvfp4: dtype must be float32 or float64, got {_names(dtype)}")
    if packed.dim() == 0 or packed.shape[:-1] != scales.shape[:-1] or packed.shape[-1] * 2 != scales.shape[-1] * GROUP:
        raise ValueError(
            "dequantize_nvfp4: packed [..., K/2] and scales [..., K/16] must belong together, "
            f"got {tuple(packed.shape)} and {tuple(scales.shape)}"
        )
    pairs = _look_up(_E2M1_PAIRS.to(dtype.to_complex()), packed)
    values = torch.view_as_real(pairs).reshape(*scales.shape, GROUP)
    values.mul_(decode_e4m3(scales, dtype).unsqueeze(-1))
    return values.flatten(-2).mul_(decode_scale)


def fc1_row_order(intermediate: int = INTERMEDIATE) -> Tensor:
    """int64 ``[2I]``: the canonical ``[up; gate]`` row that each stored FC1 row holds (stored = canonical[order]).

    Stored rows come in blocks of 32 for 16 features: up 0,2,..14 | gate 0,2,..14 | up 1,3,..15 | gate 1,3,..15.
    I must be a multiple of 16.
    """
    row = torch.arange(2 * intermediate, device="cpu")
    block, j, t = row // 32, row % 8, row % 32 // 8
    return 16 * block + 2 * j + t // 2 + intermediate * (t % 2)


def fc1_row_order_inverse(intermediate: int = INTERMEDIATE) -> Tensor:
    """int64 ``[2I]``: the stored row of each canonical FC1 row (canonical = stored[inverse])."""
    row = torch.arange(2 * intermediate, device="cpu")
    feature, gate = row % intermediate, row // intermediate
    return 32 * (feature // 16) + 16 * (feature % 2) + 8 * gate + feature % 16 // 2


def fc2_row_order(rows: int = FC2_ROWS) -> Tensor:
    """int64 ``[rows]``: the canonical output row that each stored FC2 row holds. rows must be a multiple of 32."""
    row = torch.arange(rows, device="cpu")
    return 32 * (row // 32) + 4 * (row % 8) + row % 32 // 8


def fc2_row_order_inverse(rows: int = FC2_ROWS) -> Tensor:
    """int64 ``[rows]``: the stored row of each canonical FC2 row."""
    row = torch.arange(rows, device="cpu")
    return 32 * (row // 32) + 8 * (row % 4) + row % 32 // 4


def interleave_scales(scales: Tensor) -> Tensor:
    """128x4 interleave of block scales ``[..., R, C]`` (already in stored row order), same shape and dtype.

    Scale (r, c) of an expert moves to byte
    ``(r//128)*(C/4)*512 + (c//4)*512 + (r%32)*16 + ((r%128)//32)*4 + c%4``; the result's shape is only a container.
    R must be a multiple of 128 and C of 4.
    """
    *batch, rows, columns = scales.shape
    tiles = scales.reshape(*batch, rows // 128, 4, 32, columns // 4, 4)
    return tiles.movedim(-2, -4).transpose(-3, -2).reshape(scales.shape)


def deinterleave_scales(scales: Tensor) -> Tensor:
    """Inverse of :func:`interleave_scales`."""
    *batch, rows, columns = scales.shape
    tiles = scales.reshape(*batch, rows // 128, columns // 4, 32, 4, 4)
    return tiles.transpose(-3, -2).movedim(-4, -2).reshape(scales.shape)
