"""How the command's process ends: with its code and what others registered for the end, and without taking apart."""

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys
from kernelyard.__main__ import main

class Held:
    def __del__(self):
        print("taken apart")

held = Held()
sys.argv[1:] = {words}
try:
    main()
finally:
    atexit.register(print, "and others")
"""


@pytest.mark.parametrize(("words", "code"), [(["nosuch"], 2), (["list", "--device", "cpu"], 0)])
def test_what_others_registered_is_called_and_nothing_is_taken_apart(words: list[str], code: int) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(words=words)], capture_output=True, text=True)
    assert done.returncode == code and done.stdout.endswith("and others\n") and "taken apart" not in done.stdout


def test_an_error_that_nobody_expects_is_a_traceback_and_no_verdict() -> None:
    code = "import kernelyard.cli.main as cli\ncli.main = lambda: 1 / 0\nfrom kernelyard.__main__ import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.endswith("ZeroDivisionError: division by zero\n")
