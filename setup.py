"""Packaging: metadata is in pyproject.toml, native code in CMakeLists.txt; this ties CMake into setuptools."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools" / "build"))

from native import BuildError, build_all  # noqa: E402

OPS_LIBRARY = "libcake_ops.so"


class CMakeBuild(build_ext):
    """Builds libcake_ops.so and cake_moe/_C with CMake and puts both into the package folder."""

    def build_extension(self, ext: Extension) -> None:
        try:
            library, module = build_all(ROOT / "build")
        except BuildError as error:
            raise CompileError(str(error)) from None
        target = Path(self.get_ext_fullpath(ext.name))
        self.mkpath(str(target.parent))
        self._install(module, target)
        self._install(library, target.with_name(OPS_LIBRARY))

    def _install(self, source: Path, target: Path) -> None:
        # A new inode: a process that has the old file mapped keeps a working copy.
        target.unlink(missing_ok=True)
        self.copy_file(str(source), str(target))

    def copy_extensions_to_source(self) -> None:
        super().copy_extensions_to_source()
        for built, in_tree in self._library_mapping().items():
            if Path(built).exists():
                self._install(Path(built), Path(in_tree))

    def _library_mapping(self) -> dict[str, str]:
        build_py = self.get_finalized_command("build_py")
        package = Path(build_py.get_package_dir("cake_moe"))
        return {str(Path(self.build_lib) / "cake_moe" / OPS_LIBRARY): str(package / OPS_LIBRARY)}

    def get_outputs(self) -> list[str]:
        return super().get_outputs() + ([] if self.inplace else list(self._library_mapping()))

    def get_output_mapping(self) -> dict[str, str]:
        return {**super().get_output_mapping(), **(self._library_mapping() if self.inplace else {})}


def classifiers() -> list[str]:
    """The Pythons of ci/matrix.json, and what does not change."""
    pythons = json.loads((ROOT / "ci" / "matrix.json").read_text())["python"]
    return [
        "Environment :: GPU :: NVIDIA CUDA",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: C++",
        *(f"Programming Language :: Python :: 3.{python.removeprefix('cp3')}" for python in pythons),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ]


setup(
    classifiers=classifiers(),
    ext_modules=[Extension("cake_moe._C", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
