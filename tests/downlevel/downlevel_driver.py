"""Launches recorded by ptxrun.host_shim, made on a GPU through the CUDA driver, with machine code of the caller's."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from ptxrun.host_shim import RecordedLaunch

TENSOR_MAP_BYTES = 128
# tools/ptxrun/src/shim/tensor_map_handle.h: magic, base, dims, strides, box, element strides, rank, dtype, interleave,
# swizzle, L2 promotion, fill.
_HANDLE = struct.Struct("<QQ5Q4Q5H5B6B19x")
_MAGIC = int.from_bytes(b"ptxrunTM", "little")

# cuda.h
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_COOPERATIVE, _CLUSTER_DIMENSION, _PROGRAMMATIC_SERIALIZATION = 2, 4, 6  # CU_LAUNCH_ATTRIBUTE_*


class _Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint64), ("value", ctypes.c_uint32 * 16)]


class _Config(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("smem", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    ]


class DriverError(RuntimeError):
    """A call of the CUDA driver failed."""


class Driver:
    """The CUDA driver. The calling thread must have a current context: torch.cuda.init() and one allocation do."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._modules: dict[bytes, ctypes.c_void_p] = {}

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            raise DriverError(f"{name}: {(text.value or b'').decode()} ({status})")

    def function(self, cubin: bytes, kernel: str) -> ctypes.c_void_p:
        """A kernel of the machine code, which is loaded once."""
        if cubin not in self._modules:
            module = ctypes.c_void_p()
            self._call("cuModuleLoadData", ctypes.byref(module), cubin)
            self._modules[cubin] = module
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), self._modules[cubin], kernel.encode())
        return function

    def _tensor_map(self, handle: bytes) -> ctypes.Array[ctypes.c_char]:
        """The driver's tensor map of what the shim's handle describes, at an address of the alignment that it needs."""
        magic, base, *fields = _HANDLE.unpack(handle)
        if magic != _MAGIC:
            raise ValueError("the argument is no tensor map of the shim")
        dims, strides, box, steps = fields[:5], fields[5:9], fields[9:14], fields[14:19]
        rank, dtype, interleave, swizzle, l2_promotion, fill = fields[19:]
        storage = ctypes.create_string_buffer(2 * TENSOR_MAP_BYTES)
        offset = -ctypes.addressof(storage) % TENSOR_MAP_BYTES
        encoded = (ctypes.c_char * TENSOR_MAP_BYTES).from_buffer(storage, offset)
        self._call(
            "cuTensorMapEncodeTiled",
            encoded,
            ctypes.c_int(dtype),
            ctypes.c_uint(rank),
            ctypes.c_void_p(base),
            (ctypes.c_uint64 * 5)(*dims),
            (ctypes.c_uint64 * 4)(*strides),
            (ctypes.c_uint32 * 5)(*box),
            (ctypes.c_uint32 * 5)(*steps),
            *map(ctypes.c_int, (interleave, swizzle, l2_promotion, fill)),
        )
        return encoded

    def _argument(self, value: bytes) -> ctypes.Array[ctypes.c_char]:
        if len(value) == TENSOR_MAP_BYTES and value.startswith(_MAGIC.to_bytes(8, "little")):
            return self._tensor_map(value)
        return ctypes.create_string_buffer(value, len(value))

    def launch(self, launch: RecordedLaunch, cubin: bytes, stream: int) -> None:
        """The launch with the kernel of that name in `cubin`, and the attributes that the launch code asked for."""
        function = self.function(cubin, launch.kernel)
        if launch.smem > 0:
            self._call("cuFuncSetAttribute", function, ctypes.c_int(_MAX_DYNAMIC_SHARED), ctypes.c_int(launch.smem))
        attributes = []
        if launch.pdl:
            attributes.append(_Attribute(_PROGRAMMATIC_SERIALIZATION, (1,)))
        if launch.cooperative:
            attributes.append(_Attribute(_COOPERATIVE, (1,)))
        if launch.cluster != (1, 1, 1):
            attributes.append(_Attribute(_CLUSTER_DIMENSION, launch.cluster))
        config = _Config(
            grid=launch.grid,
            block=launch.block,
            smem=launch.smem,
            stream=stream,
            attributes=(_Attribute * len(attributes))(*attributes),
            count=len(attributes),
        )
        arguments = [self._argument(value) for value in launch.args]
        pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        self._call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)
