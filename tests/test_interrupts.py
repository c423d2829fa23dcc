"""Ctrl-C at a verb that has started processes: one line, no traceback of theirs, and nothing of them stays."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kernelyard.core.interrupts import deaf_children
from kernelyard.sandbox import processes
from kernelyard.suites.admission_records import AdmissionRecords
from kernelyard.suites.kernelbench import read_source

ROOT = Path(__file__).parents[1]
PROBLEM = str(ROOT / "examples/judge/problem.py")
SAMPLES = ROOT / "tests/exploits"


def code_after_interrupts() -> int | None:
    """Of a process that meets Ctrl-C from its first moment on."""
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(0.5,))
    with deaf_children():
        process.start()
    assert process.pid is not None
    while process.is_alive():
        os.kill(process.pid, signal.SIGINT)
        time.sleep(0.02)
    process.join()
    return process.exitcode


def test_a_child_is_deaf_from_its_first_moment_whichever_thread_starts_it() -> None:
    assert code_after_interrupts() == 0
    codes: list[int | None] = []
    thread = threading.Thread(target=lambda: codes.append(code_after_interrupts()))
    thread.start()
    thread.join()
    assert codes == [0]


def test_the_parent_hears_what_came_meanwhile() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), deaf_children():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    finally:
        signal.signal(signal.SIGINT, before)


def of_process(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def spawned(pid: int) -> list[int]:
    """The processes of multiprocessing's that a process has started, its tracker aside."""
    return [each for each in processes.descendants(pid) if b"spawn_main" in of_process(each, "cmdline")]


def at_their_imports(pid: int) -> bool:
    """Python's own start is behind them and torch's under way: an interrupt would be a traceback."""
    return any(b"libtorch" in of_process(each, "maps") for each in spawned(pid))


def at_work(pid: int) -> bool:
    """A sample is judged: its canary's decoy is there."""
    below = (each for own in spawned(pid) for each in processes.descendants(own))
    return any(b"kernelyard-decoy" in of_process(each, "cmdline") for each in below)


def planted(pid: int) -> bool:
    """The command itself judges samples: its canary's decoy is there."""
    return any(b"kernelyard-decoy" in of_process(each, "cmdline") for each in processes.descendants(pid))


@contextmanager
def come_to(
    ready: Callable[[int], bool], words: list[str], folder: Path
) -> Iterator[tuple["subprocess.Popen[str]", list[int]]]:
    """The command with its temporary files in `folder`, and all that it has started by the time that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelyard", *words, "--device", "cpu"],
        cwd=folder, env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    with process:
        try:
            until = time.monotonic() + 120
            while not ready(process.pid):
                assert process.poll() is None and time.monotonic() < until, process.communicate()
                time.sleep(0.02)
            yield process, processes.descendants(process.pid)
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "ready"),
    [
        (["exploits", str(SAMPLES), "--only", "hangs_at_import", "--only", "zeros", "--jobs", "2"], at_their_imports),
        (["exploits", str(SAMPLES), "--only", "hangs_at_import", "--only", "zeros", "--jobs", "2"], at_work),
        (["baseline", "--suite", PROBLEM, "--variants", "eager"], at_their_imports),
        (["problem", "check", PROBLEM, PROBLEM], at_their_imports),
    ],
    ids=["exploits at imports", "exploits at work", "baseline", "problem check"],
)
def test_ctrl_c_shows_no_traceback_and_leaves_nothing(
    words: list[str], ready: Callable[[int], bool], tmp_path: Path
) -> None:
    with come_to(ready, words, tmp_path) as (process, begun):
        # Everyone in the foreground, as a terminal does it, but those first that the parent would end.
        for each in begun:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGINT)
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=15)
    assert process.returncode == 128 + signal.SIGINT, error
    assert "Traceback" not in error
    assert error.splitlines()[-1] == "kernelyard: interrupted; what was finished is kept"
    time.sleep(1)
    assert not [each for each in begun if of_process(each, "cmdline")]
    assert not list(tmp_path.glob("kernelyard*"))


@pytest.mark.parametrize(
    ("words", "ready"),
    [
        (["problem", "check", PROBLEM, PROBLEM], at_their_imports),
        pytest.param(
            ["exploits", str(SAMPLES), "--only", "hangs_at_import", "--only", "zeros"], planted, marks=pytest.mark.slow
        ),
    ],
    ids=["problem check", "exploits"],
)
def test_a_scheduler_that_ends_it_is_told_so_and_nothing_stays(
    words: list[str], ready: Callable[[int], bool], tmp_path: Path
) -> None:
    """SIGTERM, to the one process that the scheduler knows: a canary's folder stayed in the temporary one."""
    with come_to(ready, words, tmp_path) as (process, begun):
        process.terminate()
        _, error = process.communicate(timeout=15)
    assert process.returncode == 128 + signal.SIGTERM, error
    assert error.splitlines()[-1] == "kernelyard: terminated; what was finished is kept" and "Traceback" not in error
    assert gone(begun, 5)
    assert not list(tmp_path.glob("kernelyard*"))


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (signal.SIGKILL, -signal.SIGKILL),
        pytest.param(signal.SIGTERM, 128 + signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 128 + signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_admissions_that_had_ended_are_in_their_file(end: signal.Signals, code: int, tmp_path: Path) -> None:
    """A run of 250 problems that was cut off at 270 s had kept none."""
    hangs, records = tmp_path / "hangs.py", tmp_path / "records.jsonl"
    hangs.write_text(f"import time\ntime.sleep(600)\n{Path(PROBLEM).read_text()}")
    words = ["problem", "check", PROBLEM, str(hangs), "--records", str(records)]
    with come_to(lambda _: records.exists() and records.stat().st_size > 0, words, tmp_path) as (process, begun):
        process.send_signal(end)
        process.communicate(timeout=15)
    assert process.returncode == code
    assert gone(begun, 10)
    kept = AdmissionRecords.read(records)
    assert not kept.cut_short and kept.find(read_source(Path(PROBLEM), "problem", ""), "float32") is not None
    assert kept.find(read_source(hangs, "problem", ""), "float32") is None


FIRST = """
import os, runpy, signal, sys
class Interrupts:
    def find_spec(name, *_):
        if name == "typer":
            print("meets it", flush=True)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts)
runpy.run_module("kernelyard", run_name="__main__")
"""


@pytest.mark.parametrize(("meets", "code"), [(signal.SIG_DFL, 128 + signal.SIGINT), (signal.SIG_IGN, 0)])
def test_ctrl_c_while_the_command_line_is_imported_shows_no_traceback(meets: signal.Handlers, code: int) -> None:
    """As far as its first 0.1 s are the verb's; what a shell has put in the background goes on."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST, "--help"], capture_output=True, text=True, timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, meets),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.startswith("meets it\n") and ("Usage" in done.stdout) is (code == 0)


PARENT = """
import sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from kernelyard.core.interrupts import end_with_parent
if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
        pool.submit(print, "ready", flush=True).result()
        pool.submit(time.sleep, 60).result()
"""


def gone(pids: list[int], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while left := [pid for pid in pids if of_process(pid, "cmdline")]:
        if time.monotonic() > until:
            return not left
        time.sleep(0.02)
    return True


def test_a_child_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        begun = spawned(process.pid)
        process.kill()
    assert len(begun) == 1 and gone(begun, 10)


@pytest.mark.slow
def test_samples_at_work_end_with_a_catalogue_that_is_killed(tmp_path: Path) -> None:
    words = ["exploits", str(SAMPLES), "--only", "hangs_at_import", "--only", "zeros", "--jobs", "2"]
    with come_to(at_work, words, tmp_path) as (process, begun):
        process.kill()
    assert gone(begun, 15)
    # What a process that was killed had planted itself stays in the folder for such things.
    assert len(list(tmp_path.glob("kernelyard*"))) == 1
