"""The operators of ``torch.ops.cake`` as typed functions.

Rules about values, shapes, dtypes and devices are checked by the operators themselves, in C++, before anything runs;
these functions add the TypeErrors and the life time of a workspace's prepared state. Every message reads
``<function>: <argument> must be <rule>, got <value>``.
"""

from __future__ import annotations

import ctypes
import numbers
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import _fakes, layout
from ._native import _C, BUILD_CONFIG, FOLDER, OPS_LIBRARY
from .layout import dequantize_nvfp4

__all__ = [
    "build_info",
    "dequantize_nvfp4",
    "forget_workspace",
    "fused_moe",
    "prepare_workspace",
    "quantize_nvfp4",
    "warmup",
    "workspace_size",
]

_library = ctypes.CDLL(str(FOLDER / OPS_LIBRARY))
_library.cake_moe_forget_workspace.argtypes = (ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)
_library.cake_moe_forget_workspace.restype = None
_library.cake_moe_cpu_isa.restype = ctypes.c_char_p

_WorkspaceKey = tuple[int, int, int]  # CUDA device index or -1, address, bytes
_finalizers: dict[_WorkspaceKey, weakref.finalize[Any, Any]] = {}

_OPERATOR_INT_BITS = 63

_GEOMETRY = {
    "hidden_size": layout.HIDDEN,
    "intermediate_size": layout.INTERMEDIATE,
    "num_experts": layout.EXPERTS,
    "top_k": layout.TOP_K,
}


def _require_tensor(function: str, argument: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{function}: {argument} must be a torch.Tensor, got {type(value).__name__}")


def _require_count(function: str, argument: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, numbers.Integral, torch.SymInt)):
        raise TypeError(f"{function}: {argument} must be an int, got {type(value).__name__}")
    if isinstance(value, torch.SymInt) or torch.compiler.is_compiling():
        return
    if int(value).bit_length() > _OPERATOR_INT_BITS:  # the operators, which check the range, cannot receive it
        raise ValueError(f"{function}: {argument} must be in 1..{layout.MAX_TOKENS}, got {value}")


def _require_inference(argument: str, value: Tensor) -> None:
    if value.requires_grad:
        raise RuntimeError(f"fused_moe: {argument} must be without gradient (inference only), got requires_grad=True")


def fused_moe(
    input: Tensor,
    token_selected_experts: Tensor,
    token_final_scales: Tensor,
    fc1_expert_weights: Tensor,
    fc2_expert_weights: Tensor,
    quant_scales: Sequence[Tensor],
    *,
    workspace: Tensor | None = None,
    output: Tensor | None = None,
    situ_beta: Tensor | None = None,
    situ_linear_beta: Tensor | None = None,
) -> Tensor:
    """The routed experts of one Kimi-K3 layer on one of eight tensor-parallel ranks.

    NVFP4 input quantisation, routing, FC1, SiTU, NVFP4 requantisation, FC2 and weighted sum, M tokens with H=3584,
    I=384, E=896 and 16 routes each. The result is this rank's share: summing over the ranks is the caller's. All
    tensors are contiguous and on one device, the CPU or a GPU; inference only.

    Args:
        input: bfloat16 ``[M, 3584]``, 0 <= M <= 16384.
        token_selected_experts: int32 ``[M, 16]``, ids in 0..895. -1 means no route. Any other id makes the token's
            output row NaN.
        token_final_scales: bfloat16 or float32 ``[M, 16]``, weights of the routes, used as given.
        fc1_expert_weights: uint8 ``[896, 768, 1792]``, prepared by :func:`prepare_weights` or :func:`pack_weights`.
        fc2_expert_weights: uint8 ``[896, 3584, 192]``, likewise.
        quant_scales: six tensors. qX, float32, one element, encodes the input; FC1 block scales ``[896, 768, 224]``,
            uint8 or float8_e4m3fn, prepared; dX*dW13, float32 ``[896]``; qA, float32 ``[896]``, encodes the
            intermediate; FC2 block scales ``[896, 3584, 24]``; dA*dW2, float32 ``[896]``.
        workspace: uint8 or int8 ``[>= workspace_size(M)]``, prepared for M tokens by :func:`prepare_workspace`. Calls
            that may run at the same time need their own. None allocates one for this call.
        output: bfloat16 ``[M, 3584]``, overwritten; None allocates it. It must not overlap any other argument.
        situ_beta: float32 ``[896]``, smoothing of the gate; None means 4 for every expert.
        situ_linear_beta: float32 ``[896]``, smoothing of the linear branch; None means 25.

    Returns:
        ``output``.

    Raises:
        TypeError: an argument that must be a tensor is none.
        ValueError: wrong shape, dtype, device or alignment, not contiguous, overlapping, M > 16384, workspace too
            small or not prepared for M tokens. The output is untouched.
        RuntimeError: an argument requires grad while gradients are recorded; no kernels for the device; the driver is
            too old; something must be allocated while the stream is captured.
        IndexError: with CAKE_MOE_VALIDATE=1, an id that is neither -1 nor in 0..895. (Then scales and betas that are
            not finite and positive are a ValueError. This mode synchronises.)

    ``torch.ops.cake.fused_moe`` is the operator itself, for TorchScript and C++. A list that TorchScript owns serves
    one call: torch's stable ABI takes its tensors out. So a module must build the list in every call or receive it as
    an argument. Only the first call of these works, and the next one raises: a ``List[Tensor]`` attribute, a trace over
    captured tensors, and what ``torch.jit.freeze`` or ``torch.jit.optimize_for_inference`` folds into a constant.

    Source: the Cake SiTU backend of FlashInfer's ``cutlass_fused_moe``, whose argument names these are.
    """
    operands = {
        "input": input,
        "token_selected_experts": token_selected_experts,
        "token_final_scales": token_final_scales,
        "fc1_expert_weights": fc1_expert_weights,
        "fc2_expert_weights": fc2_expert_weights,
    }
    if not isinstance(quant_scales, (list, tuple)):
        raise TypeError(f"fused_moe: quant_scales must be a list of 6 tensors, got {type(quant_scales).__name__}")
    operands |= {f"quant_scales[{i}]": scale for i, scale in enumerate(quant_scales)}
    optional = {"workspace": workspace, "output": output, "situ_beta": situ_beta, "situ_linear_beta": situ_linear_beta}
    operands |= {name: value for name, value in optional.items() if value is not None}
    for name, value in operands.items():
        _require_tensor("fused_moe", name, value)
        if torch.is_grad_enabled():
            _require_inference(name, value)
    if workspace is None or output is None:
        _require_no_capture(input, "workspace" if workspace is None else "output")

    inputs = (
        input,
        token_selected_experts,
        token_final_scales,
        fc1_expert_weights,
        fc2_expert_weights,
        list(quant_scales),
    )
    if workspace is None:
        if output is None or torch.compiler.is_compiling():
            result: Tensor = torch.ops.cake.fused_moe_functional(*inputs, situ_beta, situ_linear_beta)
            return result if output is None else _copy_in_graph(result, output)
        workspace, tokens = _temporary_workspace(input)
        torch.ops.cake.prepare_workspace(workspace, tokens)
        try:
            torch.ops.cake.fused_moe(*inputs, workspace, output, situ_beta, situ_linear_beta)
        finally:
            torch.ops.cake.forget_workspace(workspace)
        return output
    if output is None:
        output = torch.empty_like(input)
    torch.ops.cake.fused_moe(*inputs, workspace, output, situ_beta, situ_linear_beta)
    return output


def _temporary_workspace(input: Tensor) -> tuple[Tensor, int]:
    """A workspace and its count of tokens, of some size even for an input that the operator is going to refuse."""
    tokens = min(max(input.size(0), 1), layout.MAX_TOKENS) if input.dim() > 0 else 1
    return torch.empty(workspace_size(tokens), dtype=torch.uint8, device=input.device), tokens


def _copy_in_graph(result: Tensor, output: Tensor) -> Tensor:
    """The end of a traced call without workspace: to prepare one would make its number of tokens a constant.

    Overlap and alignment do not matter to a copy, but it would convert and broadcast.
    """
    for name in ("dtype", "shape", "device"):
        wanted, got = getattr(result, name), getattr(output, name)
        if got != wanted:
            raise ValueError(f"fused_moe: output must be of the result's {name}, {wanted}, got {got}")
    return output.copy_(result)


def _require_no_capture(input: Tensor, argument: str) -> None:
    if not torch.compiler.is_compiling() and input.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(f"fused_moe: {argument} must be given while a stream is captured, got None")


def workspace_size(
    max_num_tokens: int,
    *,
    hidden_size: int = layout.HIDDEN,
    intermediate_size: int = layout.INTERMEDIATE,
    num_experts: int = layout.EXPERTS,
    top_k: int = layout.TOP_K,
) -> int:
    """Bytes of a workspace for up to ``max_num_tokens`` tokens, on any device. Host arithmetic only.

    Args:
        max_num_tokens: 1..16384; may be symbolic while tracing.
        hidden_size, intermediate_size, num_experts, top_k: the geometry, of which exactly one is supported.

    Returns:
        Bytes; grows with ``max_num_tokens``, so that a larger buffer serves every smaller count.

    Raises:
        TypeError: ``max_num_tokens`` is no int.
        ValueError: it is out of range, or the geometry is another one.

    Source: FlashInfer's ``cutlass_fused_moe_workspace_size``.
    """
    _require_count("workspace_size", "max_num_tokens", max_num_tokens)
    given = (hidden_size, intermediate_size, num_experts, top_k)
    for (name, supported), value in zip(_GEOMETRY.items(), given, strict=True):
        if value != supported:
            raise ValueError(f"workspace_size: {name} must be {supported}, got {value}")
    if isinstance(max_num_tokens, torch.SymInt) or torch.compiler.is_compiling():
        return _fakes.WORKSPACE_FIXED_BYTES + _fakes.WORKSPACE_BYTES_PER_TOKEN * max_num_tokens
    size: int = torch.ops.cake.workspace_size(int(max_num_tokens))
    return size


def prepare_workspace(workspace: Tensor, num_tokens: int, *, up_to: bool = False) -> Tensor:
    """Make a buffer ready for calls with ``num_tokens`` tokens: write the default betas, load the kernels.

    Must precede the first such call and its capture, in stream order. May be repeated for further counts. The state
    belongs to these bytes: any alias of exactly the same bytes is prepared, a view with another start or size is not,
    and it ends with the storage. Nobody else may write to a prepared buffer: the CPU backend refuses one whose
    constants were overwritten, a GPU's cannot be looked at. Preparing an overlapping buffer with another start ends the
    state of this one. ``resize_`` and ``share_memory_`` need :func:`forget_workspace` first, and so does memory that
    was prepared inside a compiled graph or through ``torch.ops``. Allocates no tensor storage.

    Args:
        workspace: uint8 or int8 ``[>= workspace_size(num_tokens)]``, 1-dimensional, contiguous, aligned to 64 bytes
            on the CPU and 128 on a GPU.
        num_tokens: 1..16384.
        up_to: prepare every count from 1 to ``num_tokens``.

    Returns:
        ``workspace``.

    Raises:
        TypeError: ``workspace`` is no tensor or ``num_tokens`` no int.
        ValueError: wrong dtype, shape or alignment, too small, or ``num_tokens`` out of range.
        RuntimeError: the stream is being captured; no kernels for the device; the driver is too old.

    Source: FlashInfer's ``cake_fused_moe_prepare_workspace``; ``up_to`` is an extension.
    """
    _require_tensor("prepare_workspace", "workspace", workspace)
    _require_count("prepare_workspace", "num_tokens", num_tokens)
    torch.ops.cake.prepare_workspace(workspace, num_tokens, up_to)
    if not torch.compiler.is_compiling() and not workspace.is_meta:
        _forget_with_storage(workspace)
    return workspace


def forget_workspace(workspace: Tensor) -> None:
    """Drop the prepared state of a buffer whose memory is about to serve another purpose.

    Not needed for buffers that torch allocates and frees: their state ends with the storage.

    Args:
        workspace: a tensor with the start and size that were prepared; an unknown one is left alone.

    Raises:
        TypeError: ``workspace`` is no tensor.

    Source: this library; FlashInfer has no counterpart.
    """
    _require_tensor("forget_workspace", "workspace", workspace)
    torch.ops.cake.forget_workspace(workspace)


def _forget_with_storage(workspace: Tensor) -> None:
    key = (workspace.get_device(), workspace.data_ptr(), workspace.nbytes)
    storage = workspace.untyped_storage()
    known = _finalizers.get(key)
    if known is not None:
        live = known.peek()
        if live is not None and live[0] is storage:
            return
        known.detach()  # the bytes have a new owner: the death of the old one must not end the new state
    finalizer = weakref.finalize(storage, _forget, key)
    finalizer.atexit = False
    _finalizers[key] = finalizer


def _forget(key: _WorkspaceKey) -> None:
    _finalizers.pop(key, None)
    _library.cake_moe_forget_workspace(*key)


def quantize_nvfp4(x: Tensor, encode_scale: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise to NVFP4: e2m1 values with one e4m3 scale for 16 consecutive elements.

    The rule of the operator's own input quantisation, bit for bit the same on every device. A block with a NaN gets the
    NaN scale; Inf saturates.

    Args:
        x: bfloat16 ``[..., K]``, contiguous, K a multiple of 16.
        encode_scale: float32, one element, same device; the inverse of the decode scale.

    Returns:
        uint8 ``[..., K/2]``, two codes a byte, the even element in the low nibble; float8_e4m3fn ``[..., K/16]``,
        linear.

    Raises:
        TypeError: an argument is no tensor.
        ValueError: wrong shape, dtype, device or alignment, or not contiguous.
        RuntimeError: an argument requires grad while gradients are recorded; no kernels for the device.

    Source: FlashInfer's ``fp4_quantize`` with fast math disabled.
    """
    _require_tensor("quantize_nvfp4", "input", x)
    _require_tensor("quantize_nvfp4", "encode_scale", encode_scale)
    packed, scales = torch.ops.cake.quantize_nvfp4(x, encode_scale)
    return packed, scales.view(torch.float8_e4m3fn)


def warmup(device: torch.device | str | int | None = None) -> None:
    """Load what a first call would load, so that a call without a prepared workspace may be timed or captured.

    Args:
        device: the CPU or a GPU; None: the current GPU where there is one, else the CPU.

    Raises:
        ValueError: another kind of device, or CAKE_MOE_CPU_ISA names no instruction set.
        RuntimeError: no kernels for the device, the driver is too old, or CAKE_MOE_CPU_ISA names an instruction set
            that the processor or the build does not have.

    Source: this library; FlashInfer has no counterpart.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    target = torch.device(device)
    if target.type not in ("cpu", "cuda"):
        raise ValueError(f"warmup: device must be the CPU or a CUDA device, got {target}")
    index = -1
    if target.type == "cuda":
        index = torch.cuda.current_device() if target.index is None else target.index
    torch.ops.cake._warmup(index)


def build_info() -> dict[str, Any]:
    """What this build holds, for bug reports.

    Returns:
        ``version``, ``compiler``, ``cuda_version`` and ``cuda_archs`` (empty without CUDA), ``fused_moe_archs`` (what
        :func:`fused_moe` runs on), ``kernels`` (architectures of each CUDA kernel), ``cpu_isas`` (instruction sets
        that are built) and ``cpu_isa`` (the one in use here).

    Raises:
        ValueError, RuntimeError: CAKE_MOE_CPU_ISA cannot be followed, as for :func:`warmup`.

    Source: this library; FlashInfer has no counterpart.
    """
    return build_facts() | {"cpu_isa": cpu_isa()}


def build_facts() -> dict[str, Any]:
    """:func:`build_info` without ``cpu_isa``, which depends on the processor and the environment."""
    info: dict[str, Any] = dict(_C.build_info())
    info["kernels"] = BUILD_CONFIG["kernels"]
    info["cpu_isas"] = BUILD_CONFIG["cpu_isas"]
    return info


def cpu_isa() -> str:
    """The instruction set of the CPU kernels; errors as in :func:`build_info`."""
    name: bytes | None = _library.cake_moe_cpu_isa()
    if name is None:
        torch.ops.cake._warmup(-1)  # fails for the same reason and says it
        raise RuntimeError("build_info: the CPU instruction set must be known, got none")
    return name.decode()
