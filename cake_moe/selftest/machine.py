"""What the checks run on, and whether they can run there."""

from __future__ import annotations

import shutil
import subprocess

import torch

from cake_moe.ops import build_info
from cake_moe.selftest.checks import target

_QUERY = ("--query-gpu=index,driver_version,mig.mode.current", "--format=csv,noheader")
_QUERY_S = 20.0

# Texts of cudaGetErrorString() after which the context answers every call with the error; library and torch put a
# prefix of their own before them.
_STICKY = (
    "illegal memory access",
    "unspecified launch failure",
    "misaligned address",
    "illegal instruction",
    "invalid program counter",
    "not supported on global/shared address space",
    "hardware stack error",
    "device-side assert",
    "launch timed out",
    "uncorrectable ",
    "peer gpu memory over nvlink",
    "tensor memory not completely freed",
)


def device_facts(device: torch.device) -> dict[str, str]:
    """Device, plan and driver, beyond `cake_moe.env`."""
    arch, sm_count = target(device)
    if device.type == "cpu":
        return {"device": "cpu", "plan": arch}
    properties = torch.cuda.get_device_properties(device)
    memory = f"{properties.total_memory / 1e9:.1f} GB"
    facts = {"device": f"{device}: {properties.name}, {memory}", "plan": f"{arch}, {sm_count} SMs"}
    return facts | driver_facts()


def driver_facts() -> dict[str, str]:
    """The newest CUDA that the driver knows; driver version and MIG mode of every GPU where nvidia-smi is there."""
    facts = {}
    version = getattr(torch._C, "_cuda_getDriverVersion", None)
    if version is not None:
        facts["driver"] = f"CUDA {version() // 1000}.{version() % 1000 // 10}"
    program = shutil.which("nvidia-smi")
    if program is not None:
        facts["nvidia-smi"] = _asked(program)
    return facts


def _asked(program: str) -> str:
    try:
        done = subprocess.run([program, *_QUERY], capture_output=True, text=True, timeout=_QUERY_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"no answer: {error}"
    rows = [[field.strip() for field in line.split(",")] for line in done.stdout.splitlines() if line.count(",") == 2]
    return "; ".join(f"GPU {index}: driver {driver}, MIG {mig}" for index, driver, mig in rows)


def missing(device: torch.device) -> str | None:
    """Why nothing can be checked on `device`, or None."""
    if device.type == "cpu":
        return None
    if not torch.cuda.is_available():
        return f"selftest: no GPU for {device}: this torch has CUDA {torch.version.cuda or 'no'} and sees none"
    if (device.index or 0) >= torch.cuda.device_count():
        return f"selftest: there is no {device}, only {torch.cuda.device_count()} GPUs"
    arch, built = target(device)[0], build_info()["fused_moe_archs"]
    if arch not in built:
        name = torch.cuda.get_device_name(device)
        return f"selftest: {name} ({arch.rstrip('a')}) has no kernels of fused_moe here; built for: {', '.join(built)}"
    return None


def is_lost(error: Exception, device: torch.device) -> bool:
    """Whether the device can run nothing more after this error, by its text or by asking it."""
    if any(text in str(error).lower() for text in _STICKY):
        return True
    if device.type == "cpu":
        return False
    try:
        torch.cuda.synchronize(device)
    except Exception:
        return True
    return False
