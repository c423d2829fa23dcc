"""What a run builds ahead: so many at a time, and with torch's headers parsed once where there is much to build."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from verdicts import ENVIRONMENT, SETTINGS, judged

from kernelyard.campaign import pipeline as module
from kernelyard.campaign.ledger import Ledger
from kernelyard.campaign.pipeline import Pipeline
from kernelyard.campaign.records import Candidate, Key
from kernelyard.campaign.slot import Answer, Slot, Terms
from kernelyard.core.policy import Policy
from kernelyard.core.problem import Source
from kernelyard.core.verdict import Status
from kernelyard.judge.compiling import Build
from kernelyard.judge.headers import WORTH_BUILDS
from kernelyard.judge.plan import Plan
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.launch import SandboxKind
from kernelyard.sandbox.limits import Limits
from kernelyard.suites.suite import Entry, Suite

TERMS = Terms("float32", SandboxKind.BUBBLEWRAP, Limits(), Deadlines(), Plan(), Policy.TRAINING)
PROBLEM = Source(Path("1_Softmax.py"), "a problem")
SUITE = Suite("made up", (Entry(1, 1, "1_Softmax.py", PROBLEM, lambda: None),))  # type: ignore[arg-type, return-value]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[bytes | None]]:
    """A run of so many candidates that build something, and of one that does not; what each was judged with."""

    def call(count: int, jobs: int, build: Callable[..., Build]) -> list[bytes | None]:
        given: list[bytes | None] = []

        def judge(slot: Slot, entry: Entry, solution: Source, built: Build) -> Answer:
            given.append(built.tree)
            verdict = judged(Key(1, 1, 0), Status.CRASHED, solution.sha256, PROBLEM.sha256).verdict
            return Answer(verdict.model_dump_json())

        monkeypatch.setattr(Slot, "judge", judge)
        monkeypatch.setattr(module, "build", build)
        texts = [*(f"load_inline {i}" for i in range(count)), "nothing"]
        found = [Candidate(Key(1, 1, i), Source(Path(f"{i}.py"), text)) for i, text in enumerate(texts)]
        with Ledger(tmp_path, create=True) as ledger:
            ledger.begin(SUITE, SETTINGS, ENVIRONMENT)
            Pipeline(ledger, SUITE, found, TERMS, ["cpu"], ENVIRONMENT, jobs=jobs).run()
        return given

    return call


@pytest.mark.parametrize("jobs", [1, 3])
def test_as_many_are_built_at_a_time_as_there_are_jobs(run: Callable[..., list[bytes | None]], jobs: int) -> None:
    """No build ends before so many are under way; and no more ever are."""
    together = threading.Barrier(jobs, timeout=20)
    lock, now, most = threading.Lock(), 0, 0

    def build(*_: object) -> Build:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait()
        with lock:
            now -= 1
        return Build(b"built")

    given = run(6, jobs, build)
    assert most == jobs
    assert (given.count(b"built"), given.count(None)) == (6, 1)


@pytest.mark.parametrize(("count", "asked"), [(WORTH_BUILDS - 1, False), (WORTH_BUILDS, True)])
def test_headers_are_precompiled_beside_the_first_builds_where_many_follow(
    run: Callable[..., list[bytes | None]], monkeypatch: pytest.MonkeyPatch, count: int, asked: bool
) -> None:
    begun = threading.Event()
    over: list[bool] = []

    def precompile(stopped: Callable[[], bool]) -> None:
        over.append(stopped())
        begun.set()

    def build(*_: object) -> Build:
        assert begun.wait(20 if asked else 0.02) is asked
        return Build(b"built")

    monkeypatch.setattr(module, "precompile", precompile)
    run(count, 2, build)
    assert over == [False] * asked, "it was told to stop before there was any reason"
