"""Single changes of a PTX text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """`old` becomes `new` at its occurrence number `at` (from 0; -1: everywhere) after the line that starts with
    `after`. codes: findings that name the cause; one of them must be there."""

    name: str
    old: str
    new: str
    codes: frozenset[str]
    after: str = ""
    at: int = 0

    def apply(self, text: str) -> str:
        """The changed text. Raises ValueError if there is no such place."""
        start = text.find(f"\n{self.after}") + 1 if self.after else 0
        if self.after and start == 0:
            raise ValueError(f"{self.name}: no line starts with {self.after!r}")
        head, tail = text[:start], text[start:]
        if tail.count(self.old) <= self.at:
            raise ValueError(f"{self.name}: no occurrence {self.at} of {self.old!r}")
        if self.at < 0:
            return head + tail.replace(self.old, self.new)
        parts = tail.split(self.old)
        return head + self.old.join(parts[: self.at + 1]) + self.new + self.old.join(parts[self.at + 1 :])


def drop(name: str, old: str, codes: set[str], after: str = "", at: int = 0) -> Mutant:
    """Without the instruction."""
    return Mutant(name, old, "", frozenset(codes), after, at)


def change(name: str, old: str, new: str, codes: set[str], after: str = "", at: int = 0) -> Mutant:
    """With another instruction or operand in its place."""
    return Mutant(name, old, new, frozenset(codes), after, at)
