"""What a solution builds when it is imported, built once: in a compile worker, without a device, as bytes under a key.

The key holds the solution's own text, so nothing that one solution leaves behind can reach another; the bytes are never
executed or unpacked here.
"""

import ast
import contextlib
import hashlib
import os
import platform
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from kernelyard.core.errors import UsageError, first_line
from kernelyard.core.folders import cache_folder
from kernelyard.core.problem import Source, without_mark
from kernelyard.core.verdict import Phase, Status
from kernelyard.core.whole_file import write_whole
from kernelyard.judge.headers import precompiled
from kernelyard.sandbox import tree
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.exchange import Ended
from kernelyard.sandbox.launch import SandboxError, SandboxKind
from kernelyard.sandbox.pool import Post, Worker
from kernelyard.sandbox.session import Session, build_environment

# What is worth a worker's start of more than a second: torch's builder by one of its names.
_BUILDERS = ("cpp_extension", "load_inline")
# Only these end an evaluation before the run worker has tried; a source whose import needs a GPU ends in others.
_FINAL = (Status.COMPILE_ERROR, Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.REJECTED, Status.INFRA_ERROR)
_NAMES = ("__file__", "__name__", "__module__", "inspect", "traceback", "sys.", "globals")
_DIGEST_BYTES = 32
KEPT_BYTES = 4 << 30
"""Of all that is kept. What one solution builds is a few MB, and 256 of whatever it likes where it means to fill the
disk: four hundred such would be a hundred GB."""


@dataclass(frozen=True)
class Build:
    """What came of a build, wherever it was done."""

    tree: bytes | None = None
    """In `tree`'s form; None where nothing was built."""
    end: tuple[Status, Phase, str] | None = None
    """Where the build says all there is to say."""


def build(solution: Source, post: Post, device: torch.device, deadlines: Deadlines) -> Build:
    """`compiled`, ahead of an evaluation that is given the outcome."""
    try:
        return Build(compiled(solution, post, device, deadlines, lambda _: None))
    except Ended as end:
        return Build(end=(end.status, end.phase, end.message))
    except (SandboxError, OSError) as error:  # a machine out of processes or descriptors
        return Build(end=(Status.INFRA_ERROR, Phase.COMPILE, str(error)))


def builds(solution: Source, kind: SandboxKind) -> bool:
    """Whether there is a build to be done ahead.

    The paths in what is built are the sandbox's; only a mount namespace has the same for every worker.
    """
    return kind is SandboxKind.BUBBLEWRAP and any(name in solution.text for name in _BUILDERS)


def compiled(
    solution: Source, post: Post, device: torch.device, deadlines: Deadlines, on_phase: Callable[[str], None]
) -> bytes | None:
    """What the solution builds, in `tree`'s form, from the cache or a compile worker; None for nothing.

    `post` is the run worker's. Raises Ended where the build says all there is to say, SandboxError as `launch` does.
    """
    _must_parse(solution)
    if not builds(solution, post.kind):
        return None
    entry = cache_folder() / "built" / key(solution, device)
    if (kept := _read(entry)) is not None:
        return kept
    on_phase("compiling")
    try:
        with Session(_worker(post), device, deadlines) as session:
            session.await_start(device_memory=False)
            built = session.build(solution.path.name, solution.text)
            if built:
                tree.entries(built)
    except tree.BadTree:
        return None
    except Ended as end:
        if end.status in _FINAL:
            raise
        return None
    if built:
        _write(entry, built)
    return built or None


def _must_parse(solution: Source) -> None:
    """What is no Python needs no worker: of candidates for KernelBench's LeNet one took its device's turn for 5 s."""
    try:
        ast.parse(without_mark(solution.text), solution.name)
    except SyntaxError as error:
        raise Ended(Status.COMPILE_ERROR, Phase.COMPILE, first_line(error)) from None
    except (ValueError, RecursionError, MemoryError):
        return  # a worker says what that is


def _worker(post: Post) -> Worker:
    """Without the device; its compilers give way to what is timed beside them.

    As far as they can: with `nice` alone, which is 10, three busy processes a core prolonged 2.7 % of what took 3 ms,
    with 19 0.9 %, with none of them 0.6 %.
    """
    headers = precompiled()
    return Worker.start(
        replace(post, device="cpu"),
        ("nice", "-n", "19") if shutil.which("nice") else (),
        readable=(headers,) if headers else (),
        environment={"CPATH": str(headers)} if headers else {},
    )


def key(solution: Source, device: torch.device) -> str:
    """Of everything that what is built depends on: the text, torch, Python, the compilers and their flags.

    The file's name only where the text can learn it; else one text under two names would be built twice.
    """
    name = solution.path.name if any(word in solution.text for word in _NAMES) else ""
    parts = [solution.text, name, torch.__version__, str(torch.version.cuda), platform.python_version()]
    parts += [f"{name}={value}" for name, value in build_environment(device).items()]
    parts += [f"{name}={os.environ.get(name)}" for name in ("CUDA_HOME", "CUDA_PATH")]
    for program in ("c++", "g++", "nvcc", "ninja"):
        path = shutil.which(program)
        parts.append(f"{path} {Path(path).stat().st_mtime_ns}" if path else f"no {program}")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _read(entry: Path) -> bytes | None:
    """What is kept, if its digest holds and it is still a tree."""
    try:
        stored = entry.read_bytes()
        built = stored[_DIGEST_BYTES:]
        if hashlib.sha256(built).digest() != stored[:_DIGEST_BYTES]:
            return None
        tree.entries(built)
    except (OSError, tree.BadTree):
        return None
    now = time.time_ns()  # by itself a file has the last tick's time, as what was written 4 ms before may have
    with contextlib.suppress(OSError):
        os.utime(entry, ns=(now, now))  # what was used last goes last
    return built


def _write(entry: Path, built: bytes) -> None:
    """Whole or not at all. A cache that cannot be written costs time and nothing else."""
    with contextlib.suppress(OSError, UsageError):
        entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(entry, hashlib.sha256(built).digest() + built)
        _make_room(entry.parent)


def _make_room(folder: Path) -> None:
    """Take away what was not used for the longest time, beyond `KEPT_BYTES`."""
    kept = 0
    for about, path in sorted(((path.stat(), path) for path in folder.iterdir()), key=_last_used, reverse=True):
        kept += about.st_size
        if kept > KEPT_BYTES:
            path.unlink(missing_ok=True)


def _last_used(file: tuple[os.stat_result, Path]) -> int:
    return file[0].st_mtime_ns
