"""What an interrupted run says of KernelBench's files, which are of an earlier one."""

import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from command_line import Call, Done
from solutions import write
from verdicts import judged

from kernelyard.campaign.kernelbench_files import RESULTS
from kernelyard.campaign.ledger import Ledger
from kernelyard.campaign.records import Candidate
from kernelyard.suites.suite import Suite

KEPT = "kernelyard: {how}; what was finished is kept"
Stop = Callable[[], None]


def interrupt() -> None:
    raise KeyboardInterrupt


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def run(tmp_path: Path, kernelyard: Call, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """A run that comes to `count` verdicts, and is then stopped, or comes to its end."""
    write(tmp_path / "problems", tmp_path / "run")

    def call(count: int, stop: Stop = lambda: None) -> Done:
        class Judging:
            unfit = ()

            def __init__(
                self, ledger: Ledger, suite: Suite, left: Sequence[Candidate], *_: object, **__: object
            ) -> None:
                self.ledger, self.suite, self.left = ledger, suite, left

            def run(self) -> None:
                for one in self.left[:count]:
                    problem = self.suite.texts[one.key.level, one.key.problem]
                    self.ledger.finish(judged(one.key, solution=one.source.sha256, problem=problem))
                stop()

        monkeypatch.setattr("kernelyard.cli.run.Pipeline", Judging)
        return kernelyard("run", "run", "--suite", "problems", "--device", "cpu", "--rounds", "3", cwd=tmp_path)

    return call


@pytest.mark.parametrize(("stop", "how", "code"), [(interrupt, "interrupted", 130), (terminate, "terminated", 143)])
def test_a_file_that_lacks_what_was_judged_is_said_in_the_line(
    run: Callable[..., Done], tmp_path: Path, kernelyard: Call, stop: Stop, how: str, code: int
) -> None:
    results = tmp_path / "run" / RESULTS
    assert run(2).returncode == 1 and results.exists()
    before = results.read_text()
    done = run(3, stop)
    assert done.returncode == code
    said = f"; {RESULTS} lacks 3 verdicts until the next run, or `kernelyard run run --export`\n"
    assert done.stderr == KEPT.format(how=how) + said
    assert results.read_text() == before
    # Nor does one that is stopped before it has come to anything make them whole.
    assert run(0, stop).stderr == done.stderr
    assert kernelyard("run", "run", "--export", cwd=tmp_path).returncode == 0
    assert sum(map(len, json.loads(results.read_text()).values())) == 5
    assert run(0, stop).stderr == KEPT.format(how=how) + "\n"


def test_where_there_is_no_file_there_is_nothing_to_say(run: Callable[..., Done]) -> None:
    assert run(3, interrupt).stderr == KEPT.format(how="interrupted") + "\n"


def test_a_file_that_cannot_be_read_costs_not_the_line(run: Callable[..., Done], tmp_path: Path) -> None:
    def damaged() -> None:
        (tmp_path / "run" / RESULTS).write_text("{")
        interrupt()

    assert run(1, damaged).stderr == KEPT.format(how="interrupted") + "\n"
