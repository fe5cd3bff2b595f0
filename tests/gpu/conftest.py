"""Everything here needs a GPU of an architecture that the wheel is built for."""

from __future__ import annotations

import pytest
import torch


def _missing_hardware() -> str | None:
    if not torch.cuda.is_available():
        return "needs an NVIDIA GPU (sm_90a, sm_100a or sm_103a); this machine has none"
    capability = torch.cuda.get_device_capability()
    if capability not in {(9, 0), (10, 0), (10, 3)}:
        return f"needs sm_90a, sm_100a or sm_103a; this GPU is sm_{capability[0]}{capability[1]}"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = _missing_hardware()
    for item in items:
        if "tests/gpu" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))
