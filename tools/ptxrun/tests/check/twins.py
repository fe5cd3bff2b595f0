"""Kernels with one fault and their corrected twins. A case is a body with named holes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernel_text import Run


@dataclass(frozen=True)
class Twins:
    """code: what the faulty kernel must be reported with, under every schedule; `a|b`: depending on the order of the
    warps. wrong, right: the holes' contents. also: codes that the fault may bring besides, as a consequence.
    """

    name: str
    code: str
    body: str
    wrong: Mapping[str, str]
    right: Mapping[str, str]
    setup: Run = field(default_factory=Run)
    also: tuple[str, ...] = ()
    message: str = ""  # part of the finding's message

    @property
    def codes(self) -> set[str]:
        return set(self.code.split("|"))

    def text(self, holes: Mapping[str, str]) -> str:
        body = self.body
        for hole, content in holes.items():
            assert f"<{hole}>" in body, f"{self.name}: no hole {hole}"
            body = body.replace(f"<{hole}>", content)
        assert "<" not in body.replace("<<", ""), f"{self.name}: a hole is left"
        return body
