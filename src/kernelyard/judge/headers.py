"""torch's C++ headers, parsed once for all that is built: `load_inline` spends most of its time on them.

GCC takes `torch/extension.h.gch` for `torch/extension.h` where it finds it first and every option that matters is the
same, and reads the header itself where one is not. The folder is offered by $CPATH, which comes before torch's own, so
that neither a source nor a command line changes, and what is built is the same to the byte. For a minimal extension
on two cores: 17 s of processor time for `main.cpp` without, 6 s with it. nvcc's 26 s for the `.cu` beside it stay:
it hands its compilers text that is preprocessed already, and refuses their own precompiled headers.
"""

import contextlib
import functools
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from kernelyard.core.folders import cache_folder

# What a source may ask of the compiler and still be served: nothing, and the optimisation that most ask for. GCC holds
# -O1 to -O3 for one thing here; -g, other standards and -ffast-math read the header as ever.
VARIANTS = {"plain": "-O0", "optimised": "-O3"}
WORTH_BUILDS = 8
"""Building them takes as long as two extensions, and saves a quarter of each."""
_SECONDS = 600.0
_ABANDONED_SECONDS = 3600.0
_HEADER = "torch/extension.h"
# No compiler knows it: torch's builder writes its options down, and nothing is built.
_REFUSED = "--nothing-is-built"
_ASK = f"""
import os, sys, torch
from torch.utils.cpp_extension import load_inline
# For nvcc alone; by itself torch 2.11 asks a GPU for it, and fails where there is none.
os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "8.0")
given = {{"build_directory": sys.argv[1], "extra_cflags": ["{_REFUSED}"]}}
load_inline("headers", "", with_cuda=torch.version.cuda is not None, **given)
"""


def precompiled() -> Path | None:
    """The folder for $CPATH; None where nobody has made it."""
    folder = _folder()
    return folder if folder is not None and folder.exists() else None


def precompile(stopped: Callable[[], bool] = lambda: False) -> Path | None:
    """Make the folder where it is not there, in half a minute and more; None where it cannot be made or was stopped."""
    folder = _folder()
    if folder is None or folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _clear(folder.parent)
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".making-"))
    try:
        options = _options(made)
        if options is None or not _compile(made, options, stopped) or not _serves(made, options):
            return None
        with contextlib.suppress(OSError):  # another run was faster
            made.rename(folder)
        return folder if folder.exists() else None
    finally:
        shutil.rmtree(made, ignore_errors=True)


@functools.cache
def _folder() -> Path | None:
    """By all that it depends on; None without GCC."""
    compiler = shutil.which("c++")
    if compiler is None or not shutil.which("ninja"):
        return None
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
    header = Path(torch.__path__[0]) / "include" / _HEADER
    if "Free Software Foundation" not in version or not header.exists():
        return None
    parts = [version, str(header), str(header.stat().st_mtime_ns), torch.__version__, platform.python_version()]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return cache_folder() / "headers" / digest


def _options(scratch: Path) -> list[str] | None:
    """What torch's builder would give the compiler, but for the name of an extension."""
    build = scratch / "asked"
    build.mkdir()
    command = [sys.executable, "-c", _ASK, str(build)]
    try:
        subprocess.run(command, capture_output=True, timeout=_SECONDS)
        lines = (build / "build.ninja").read_text().splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return None
    finally:
        shutil.rmtree(build, ignore_errors=True)
    flags = next((line.partition("=")[2] for line in lines if line.startswith("cflags =")), None)
    if flags is None:
        return None
    named = ("-DTORCH_EXTENSION_NAME", _REFUSED)
    return [flag for flag in shlex.split(flags.replace("$ ", " ")) if not flag.startswith(named)]


def _compile(folder: Path, options: list[str], stopped: Callable[[], bool]) -> bool:
    target = folder / f"{_HEADER}.gch"
    target.mkdir(parents=True)
    header = Path(torch.__path__[0]) / "include" / _HEADER
    running = [
        subprocess.Popen(
            ["c++", *options, level, "-x", "c++-header", str(header), "-o", str(target / name)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # nothing is written: it ends when the last process of the group has
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for name, level in VARIANTS.items()
    ]
    deadline = time.monotonic() + _SECONDS
    try:
        while any(each.poll() is None for each in running):
            if stopped() or time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return all(each.returncode == 0 for each in running)
    finally:
        for each in running:
            # `c++` is a driver: the compiler proper is its child, would go on for a minute, and dies after it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.communicate()


def _serves(folder: Path, options: list[str]) -> bool:
    """Whether GCC takes it: -H marks a precompiled header that is used with an exclamation mark."""
    source = folder / "try.cpp"
    source.write_text(f"#include <{_HEADER}>\n")
    command = ["c++", *options, "-DTORCH_EXTENSION_NAME=x", "-H", "-fsyntax-only", str(source)]
    done = subprocess.run(command, env={**os.environ, "CPATH": str(folder)}, capture_output=True, text=True)
    source.unlink()
    return done.returncode == 0 and any(line.startswith("! ") for line in done.stderr.splitlines())


def _clear(folder: Path) -> None:
    """What a killed run was making: they are large."""
    for path in folder.glob(".making-*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
