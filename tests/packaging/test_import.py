"""Importing and the first call: no GPU, no driver, no compiler, no child process, nothing written, one clear error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cake_moe import __version__, _native

FIRST_CALL = """
import cake_moe, torch
packed, scales = cake_moe.quantize_nvfp4(torch.ones(2, 64, dtype=torch.bfloat16), torch.ones(1))
assert packed.shape == (2, 32) and scales.shape == (2, 4)
"""

# torch itself writes and starts nothing when it is imported here, so it is imported before the hook.
WATCH = """
import sys, torch, numpy
seen = []
def watch(event, arguments):
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.mkdir", "os.remove"):
        seen.append((event, str(arguments)))
    elif event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        seen.append((event, str(arguments)))
    elif event == "socket.connect":
        seen.append((event, str(arguments)))
sys.addaudithook(watch)
sys.dont_write_bytecode = True
"""


def test_import_and_first_call_start_no_process_and_write_nothing(python) -> None:
    # /proc is not writable, not even for root
    child = python(WATCH + FIRST_CALL + "print(seen)", HOME="/proc", TMPDIR="/proc", PATH="", CUDA_HOME=None)
    assert child.returncode == 0, child.stderr
    assert child.stdout.strip() == "[]"


def test_the_watch_sees_what_it_watches(python) -> None:
    code = "import subprocess\nsubprocess.run(['/bin/true'])\nopen('file', 'w').close()\nprint(len(seen))"
    child = python(WATCH + code)
    assert child.returncode == 0, child.stderr
    assert int(child.stdout) >= 2


def test_import_loads_no_driver_and_creates_no_context(python) -> None:
    code = "import cake_moe, torch\nassert not torch.cuda.is_initialized()\nprint(open('/proc/self/maps').read())"
    child = python(code)
    assert child.returncode == 0, child.stderr
    assert "libcake_ops.so" in child.stdout
    assert "libcuda.so" not in child.stdout
    assert "/dev/nvidia" not in child.stdout


def test_fork_after_import_works(python) -> None:
    code = f"""
import os
import cake_moe
pid = os.fork()
if pid == 0:
    try:
{FIRST_CALL.replace(chr(10), chr(10) + "        ")}
        os._exit(7)
    except BaseException:
        os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    child = python(code)
    assert child.stdout.strip() == "7", child.stderr


def test_first_call_after_import_takes_under_two_seconds(python) -> None:
    code = "import cake_moe, time\nstart = time.perf_counter()\n" + FIRST_CALL + "print(time.perf_counter() - start)"
    child = python(code)
    assert child.returncode == 0, child.stderr
    assert float(child.stdout) < 2.0


def import_error(python, **variables: str | None) -> str:
    code = "try:\n    import cake_moe\nexcept ImportError as error:\n    print(type(error).__name__, error)"
    child = python(code, **variables)
    assert child.returncode == 0, child.stderr
    assert len(child.stdout.strip().splitlines()) == 1
    return child.stdout


def fake_torch(folder: Path, text: str) -> Path:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(text)
    return folder


@pytest.mark.parametrize("version", ["2.9.1", "2.9.1+cu130", "1.13.0", "2.0.0a0+git"])
def test_too_old_torch_is_one_error_with_both_versions(python, tmp_path: Path, version: str) -> None:
    fake = fake_torch(tmp_path / "fake", f"__version__ = '{version}'\n")
    text = import_error(python, PYTHONPATH=f"{fake}:{_native.FOLDER.parent}")
    assert text == f"ImportError cake_moe {__version__} needs torch >= 2.10, found torch {version}\n"


def test_broken_torch_is_one_error_with_its_reason(python, tmp_path: Path) -> None:
    fake = fake_torch(tmp_path / "fake", "raise ImportError('libfoo.so.1: no such file')\n")
    text = import_error(python, PYTHONPATH=f"{fake}:{_native.FOLDER.parent}")
    assert f"cake_moe {__version__} needs torch >= 2.10, which cannot be imported: libfoo.so.1" in text


def test_native_library_of_another_version_is_refused(python, copied_package: Path) -> None:
    version = copied_package / "cake_moe" / "_version.py"
    version.write_text('__version__ = "9.9.9"\n')
    text = import_error(python, PYTHONPATH=str(copied_package))
    assert "cake_moe 9.9.9: " in text
    assert f"libcake_ops.so is of version {__version__}; reinstall the package" in text


def test_module_of_another_python_is_named(python, copied_package: Path) -> None:
    package = copied_package / "cake_moe"
    module = next(package.glob("_C*.so"))
    module.rename(package / "_C.cpython-39-x86_64-linux-gnu.so")
    text = import_error(python, PYTHONPATH=str(copied_package))
    assert "no _C for cpython-3" in text
    assert "found: _C.cpython-39-x86_64-linux-gnu.so" in text


def test_unloadable_library_is_one_error(python, copied_package: Path) -> None:
    (copied_package / "cake_moe" / _native.OPS_LIBRARY).write_bytes(b"not a library")
    text = import_error(python, PYTHONPATH=str(copied_package))
    assert "libcake_ops.so cannot be loaded with torch" in text


def without_libraries(copied_package: Path, folder: Path) -> Path:
    shutil.copytree(copied_package, folder, ignore=shutil.ignore_patterns("*.so"))
    return folder


def test_sources_alone_take_the_libraries_of_the_installed_package(
    python, copied_package: Path, tmp_path: Path
) -> None:
    # As in a checkout after pip install: the current folder comes first on the path and holds the sources only.
    metadata = copied_package / f"cake_moe-{__version__}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: cake-moe\nVersion: {__version__}\n")
    checkout = without_libraries(copied_package, tmp_path / "checkout")
    code = "from cake_moe import _native, _C\nprint(_native.__file__, _native.FOLDER, _C.__file__)"
    child = python(code, cwd=checkout, PYTHONPATH=str(copied_package))
    assert child.returncode == 0, child.stderr
    sources, libraries, module = child.stdout.split()
    assert Path(sources).parent == checkout / "cake_moe"
    assert Path(libraries) == copied_package / "cake_moe"
    assert Path(module).parent == copied_package / "cake_moe"


def test_sources_alone_say_how_to_build(python, copied_package: Path, tmp_path: Path) -> None:
    checkout = without_libraries(copied_package, tmp_path / "checkout")
    hidden = "import importlib.metadata as m\nm.distributions = lambda **names: iter(())\n"
    child = python(hidden + "import cake_moe", cwd=checkout, PYTHONPATH=None)
    assert child.returncode == 1
    last = child.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: cake_moe {__version__}: libcake_ops.so is neither in {checkout}/cake_moe")
    assert last.endswith("pip install . or python setup.py build_ext --inplace")
