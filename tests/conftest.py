"""What all tests share: reproducible hypothesis runs and a header that names the package under test."""

from __future__ import annotations

import hypothesis
import torch

import cake_moe
from cake_moe import _native

hypothesis.settings.register_profile("cake_moe", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("cake_moe")


def pytest_report_header() -> list[str]:
    return [
        f"cake_moe {cake_moe.__version__} from {cake_moe.__path__[0]}, native libraries from {_native.FOLDER}",
        f"torch {torch.__version__}, {torch.get_num_threads()} threads",
    ]
