"""Many problems through admission, each in a process that can be ended: a crash or a hang costs one of them."""

import gc
import multiprocessing
import queue
import re
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Literal

import torch

from kernelyard.core.environment import Environment
from kernelyard.core.errors import UsageError
from kernelyard.core.interrupts import deaf_children, end_with_parent
from kernelyard.core.problem import readable
from kernelyard.core.workload import DTYPES
from kernelyard.judge.admission import HONEST_FAILS, Admission, admit
from kernelyard.judge.size import NO_ROOM, TOO_LARGE, free_memory
from kernelyard.suites.kernelbench import load_problem

# A process starts torch and a device before its first problem; what takes longer than this beyond its time hangs.
GRACE_SECONDS = 60.0


def problem_files(given: Sequence[Path]) -> list[Path]:
    """The files among `given` and in its folders, `2_x.py` before `10_y.py`.

    Raises UsageError for an empty folder, and OSError for one that may not be read, in which glob finds nothing.
    """
    found: list[Path] = []
    for path in given:
        named = (each for each in path.iterdir() if each.suffix == ".py") if path.is_dir() else [path]
        inside = sorted(named, key=_by_number)
        if not inside:
            raise UsageError(f"{path}: no .py in this folder; expected problem files")
        found += inside
    return found


def _by_number(path: Path) -> tuple[int, str]:
    number = re.match(r"\d+", path.name)
    return (int(number[0]) if number else 0, path.name)


def admit_all(
    paths: Sequence[Path], *, environments: Sequence[Environment], dtype: str, seconds: float, jobs: int
) -> Iterator[tuple[Path, Admission]]:
    """The admission of each file, as they end, `jobs` at a time on the device of each environment.

    What may lack room beside so many is tried again beside a third as many, in the end by itself.
    """
    while paths:
        again: list[Path] = []
        for path, record in _pooled(paths, environments, dtype, seconds, jobs):
            if jobs > 1 and _may_lack_room(record):
                again.append(path)
            else:
                yield path, record
        paths, jobs = again, max(1, jobs // 3)


def _may_lack_room(record: Admission) -> bool:
    """Too large for its share of the memory, as a whole or for a stress, or refused by an honest answer: where there is
    no room for the workspace of one algorithm a convolution takes another, which rounds otherwise."""
    return record.reason.startswith((TOO_LARGE, HONEST_FAILS)) or NO_ROOM in record.skipped.values()


def _pooled(
    paths: Sequence[Path], environments: Sequence[Environment], dtype: str, seconds: float, jobs: int
) -> Iterator[tuple[Path, Admission]]:
    waiting: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Path, Admission] | BaseException] = queue.SimpleQueue()
    share = min(jobs, len(paths))
    seats = [environment for _ in range(share) for environment in environments][: len(paths)]
    for path in [*paths, *[None] * len(seats)]:
        waiting.put(path)

    helpers = [_Helper(environment, dtype, seconds, share) for environment in seats]

    def keep_busy(helper: _Helper) -> None:
        try:
            while (path := waiting.get()) is not None:
                done.put((path, helper.admit(path)))
        except BaseException as error:
            # Whatever it is: who waits for this thread's records would wait for ever.
            done.put(error)

    threads = [threading.Thread(target=keep_busy, args=(helper,), daemon=True) for helper in helpers]
    for thread in threads:
        thread.start()
    try:
        for _ in paths:
            found = done.get()
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        for helper in helpers:
            helper.close()
    for thread in threads:
        thread.join()


class _Closed(Exception):
    """Nobody waits for records any more."""


class _Helper:
    """A process that admits one file after another; a new one where it dies or hangs, but none after `close`."""

    def __init__(self, environment: Environment, dtype: str, seconds: float, share: int) -> None:
        self.environment, self.dtype, self.seconds, self.share = environment, dtype, seconds, share
        self._running: tuple[SpawnProcess, Connection] | None = None
        self._closed = False
        self._lock = threading.Lock()

    def _start(self) -> tuple[SpawnProcess, Connection]:
        with self._lock:
            if self._closed:
                raise _Closed
            if self._running is None:
                context = multiprocessing.get_context("spawn")
                pipe, theirs = context.Pipe()
                given = (theirs, self.environment, self.dtype, self.seconds, self.share)
                process = context.Process(target=_serve, args=given, daemon=True)
                with deaf_children():
                    process.start()
                theirs.close()
                self._running = process, pipe
            return self._running

    def admit(self, path: Path) -> Admission:
        process, pipe = self._start()
        try:
            pipe.send(str(path))
            if pipe.poll(self.seconds + GRACE_SECONDS):
                return Admission.model_validate_json(pipe.recv())
            reason = f"no end after {self.seconds + GRACE_SECONDS:g} s"
        except (EOFError, OSError):
            process.join(5)
            reason = f"its process ended by itself, exit code {process.exitcode}"
        self._end()
        return _unjudged("skipped", path, self.dtype, self.environment, reason)

    def close(self) -> None:
        """From any thread: else the one that waits for the process would start another while the program ends."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        with self._lock:
            if self._running is not None:
                process, pipe = self._running
                self._running = None
                process.kill()
                process.join()
                pipe.close()


def _serve(pipe: Connection, environment: Environment, dtype: str, seconds: float, share: int) -> None:
    end_with_parent()
    where = torch.device(environment.device)
    if where.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(0.9 / share, where)
    else:
        torch.set_num_threads(max(1, torch.get_num_threads() // share))
    memory = free_memory(where) // share
    while True:
        try:
            path = Path(pipe.recv())
        except EOFError:
            return
        try:
            made = load_problem(path)
            record = admit(made, environment=environment, dtype=DTYPES[dtype], memory_bytes=memory, seconds=seconds)
        except UsageError as error:
            record = _unjudged("not_loaded", path, dtype, environment, str(error))
        try:
            pipe.send(record.model_dump_json())
        except OSError:
            return
        gc.collect()
        if where.type == "cuda":
            torch.cuda.empty_cache()


def _unjudged(
    status: Literal["skipped", "not_loaded"], path: Path, dtype: str, environment: Environment, reason: str
) -> Admission:
    """Without a hash: the file may be what cannot be read."""
    return Admission(
        problem=readable(path.name),
        problem_sha256="",
        dtype=dtype,
        environment=environment,
        status=status,
        reason=reason,
    )
