"""What becomes of output that nobody takes: it is not the 1 of a verdict, whoever writes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def written(writes: str, stdout: int) -> tuple[int, str]:
    code = (
        "import sys, rich, typer; from kernelyard.cli import main; verb = typer.Typer();"
        f"verb.command()(lambda: {writes}); main.build = lambda _: verb; sys.argv = ['kernelyard']; main.main()"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60)
    return done.returncode, done.stderr


WAYS = pytest.mark.parametrize("writes", ["print('x')", "typer.echo('x')", "rich.print('x')"])


@WAYS
def test_a_reader_who_is_gone_is_silence_and_141(writes: str) -> None:
    nobody, pipe = os.pipe()
    os.close(nobody)
    try:
        assert written(writes, pipe) == (141, "")
    finally:
        os.close(pipe)


@WAYS
def test_a_full_disk_is_one_line(writes: str) -> None:
    with Path("/dev/full").open("w") as full:
        code, said = written(writes, full.fileno())
    assert (code, said) == (2, "kernelyard: what was to be printed cannot be written: No space left on device\n")


@pytest.mark.parametrize("line", ["nosuch 2>/dev/full", "list >/dev/full 2>/dev/full"])
def test_where_not_even_that_can_be_said_it_is_no_verdict(line: str) -> None:
    ended = subprocess.run(["sh", "-c", f"'{sys.executable}' -m kernelyard {line}"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", "")


@pytest.mark.parametrize(
    ("closed", "code", "said"),
    [
        ("<&- >&-", 0, ""),
        ("--device nowhere >&-", 2, "kernelyard: --device 'nowhere': expected"),
        ("--device nowhere 2>&-", 2, ""),
    ],
)
def test_a_stream_that_is_closed_is_nowhere(closed: str, code: int, said: str) -> None:
    """`kernelyard list >&-` was a traceback of rich's, and exit code 1; without stderr, errors were on stdout."""
    line = f"'{sys.executable}' -m kernelyard list {closed}"
    ended = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    heard = ended.stdout + ended.stderr
    assert (ended.returncode, heard[: len(said)]) == (code, said) and bool(heard) == bool(said), heard
