"""The routed experts of Kimi-K3 in NVFP4 as one PyTorch operator, for CPU, Hopper and Blackwell.

The usual order of use: :func:`load_checkpoint_layer` or :func:`prepare_weights`, :func:`workspace_size`,
:func:`prepare_workspace`, :func:`fused_moe`. ``cake_moe.flashinfer`` offers the same under FlashInfer's names,
``cake_moe.reference`` the arithmetic in plain PyTorch, ``cake_moe.testing`` what tests need.
"""

from . import _native, reference
from ._version import __version__
from .checkpoint import CheckpointLayer, CheckpointReport, load_checkpoint_layer
from .ops import (
    build_info,
    dequantize_nvfp4,
    forget_workspace,
    fused_moe,
    prepare_workspace,
    quantize_nvfp4,
    warmup,
    workspace_size,
)
from .weights import CanonicalWeights, PreparedWeights, pack_weights, prepare_weights, unpack_weights

_C = _native._C  # _native comes first: whatever keeps the native libraries from loading is reported by it

__all__ = [
    "_C",
    "CanonicalWeights",
    "CheckpointLayer",
    "CheckpointReport",
    "PreparedWeights",
    "__version__",
    "build_info",
    "dequantize_nvfp4",
    "forget_workspace",
    "fused_moe",
    "load_checkpoint_layer",
    "pack_weights",
    "prepare_weights",
    "prepare_workspace",
    "quantize_nvfp4",
    "reference",
    "unpack_weights",
    "warmup",
    "workspace_size",
]
