"""Where built files are kept, and their names: a hash of everything that they are made from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
PROJECT = PACKAGE.parent
SOURCES = PROJECT / "src"
SOURCE_SUFFIXES = {".h", ".hpp", ".cuh", ".cpp", ".cu", ".inc", ".txt", ".cmake"}


def cache_folder() -> Path:
    """PTXRUN_CACHE, else ptxrun in XDG_CACHE_HOME, else in ~/.cache."""
    if chosen := os.environ.get("PTXRUN_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ptxrun"


def source_files(folders: Iterable[Path]) -> list[Path]:
    """C++ and CUDA files under the folders, in a fixed order."""
    found = (path for folder in folders for path in folder.rglob("*") if path.suffix in SOURCE_SUFFIXES)
    return sorted(path for path in found if path.is_file())


def digest(files: Iterable[Path], *words: str) -> str:
    """Hash of the files' contents and of the words."""
    state = hashlib.sha256()
    for word in words:
        state.update(word.encode() + b"\0")
    for path in files:
        content = path.read_bytes()
        state.update(f"{path}\0{len(content)}\0".encode())
        state.update(content)
    return state.hexdigest()[:20]
