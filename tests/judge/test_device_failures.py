"""What a device or its driver does to the judge itself: the machine's fault, looked at, and nobody's verdict lost."""

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from kernelyard.core.errors import UsageError
from kernelyard.core.problem import Problem, Source
from kernelyard.core.verdict import Phase, Status, Verdict
from kernelyard.judge import evaluate as evaluation
from kernelyard.judge.compiling import Build
from kernelyard.judge.exam import Exam
from kernelyard.judge.findings import End, blameless
from kernelyard.judge.plan import Plan
from kernelyard.judge.reference import InvalidProblem
from kernelyard.judge.size import TOO_LARGE
from kernelyard.sandbox import witness
from kernelyard.sandbox.deadlines import WAITING
from kernelyard.sandbox.device_memory import DriverError
from kernelyard.sandbox.exchange import Ended
from kernelyard.sandbox.health import Ward
from kernelyard.sandbox.launch import SandboxKind
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.pool import Post

sys.path.insert(0, str(Path(__file__).parents[1] / "campaign"))
from verdicts import ENVIRONMENT

XPU = torch.device("xpu", 0)


class Failing(nn.Module):
    """A sound reference until its device fails."""

    error: Exception | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if Failing.error is not None:
            raise Failing.error
        return x.relu()


PROBLEM = Problem(Source(Path("p.py"), "p"), Failing, lambda: [torch.randn(8, 4)], list)


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Verdict]:
    """The verdict on a stub of an accelerator, whose worker does `begin` as it starts, and whose examination is
    `examine`; looks at the device stand in `judged.looks`."""
    monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path))
    monkeypatch.setattr(Failing, "error", None)
    monkeypatch.setattr(evaluation, "standing", lambda *_: ())
    monkeypatch.setattr(evaluation, "describe", lambda _: ENVIRONMENT)

    class Session:
        process = SimpleNamespace(missing={})

        def __init__(self, begin: Callable[[], None]) -> None:
            self.begin_start = begin

        def __enter__(self) -> "Session":
            return self

        def __exit__(self, *_: object) -> None:
            pass

    def judge(
        *,
        begin: Callable[[], None] = lambda: None,
        examine: Callable[..., Exam] | None = None,
        look: Callable[..., str | None] = lambda *_: None,
        on_phase: Callable[[str], None] = lambda _: None,
    ) -> Verdict:
        looks.clear()
        monkeypatch.setattr(evaluation, "Session", lambda *_: Session(begin))
        if examine is not None:
            monkeypatch.setattr(evaluation, "_examine", examine)

        def looked(device: torch.device, turn: Any) -> str | None:
            looks.append(device)
            return look(device, turn)

        pool: Any = SimpleNamespace(post=Post(SandboxKind.NATIVE, Limits(), str(XPU)), take=lambda: None)
        return evaluation.evaluate(
            PROBLEM, Source(Path("s.py"), "s"), device=XPU, dtype=torch.float32, sandbox=SandboxKind.NATIVE,
            limits=Limits(), pool=pool, ward=Ward(tmp_path / "quarantine", looked), build=Build(), on_phase=on_phase,
        )  # fmt: skip

    looks: list[torch.device] = []
    judge.looks = looks  # type: ignore[attr-defined]
    return judge


def raising(error: Exception) -> Callable[..., Any]:
    def raises(*_: object, **__: object) -> Any:
        raise error

    return raises


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("CUDA error: an uncorrectable ECC error was encountered", Status.INFRA_ERROR),
        ("CUDA error: device-side assert triggered", Status.INVALID_PROBLEM),
    ],
)
def test_a_context_that_the_judge_loses_is_no_fault_of_the_problems(judged: Any, said: str, status: Status) -> None:
    """`invalid_problem` is kept for good; but an index beyond a table is the problem's own."""

    def examine(case: Any, built: Any, candidate: Any, open_baseline: Any, found: Any) -> Any:
        exam = Exam(case.problem, case.dtype, torch.device("cpu"), Plan().tolerance)
        exam.first_question()
        found.phase = Phase.CHECK
        Failing.error = torch.AcceleratorError(said)
        return exam.question()

    assert judged(examine=examine).status is status
    assert bool(judged.looks) is (status is Status.INFRA_ERROR)


def test_of_a_lost_context_nothing_is_given_back_and_the_verdict_stands(
    judged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call of the driver fails then, those that tidy up as well."""
    lost = torch.AcceleratorError("CUDA error: unspecified launch failure")
    monkeypatch.setattr(evaluation, "make_room", raising(lost))
    verdict = judged(examine=raising(InvalidProblem("the reference fails")))
    assert verdict.status is Status.INFRA_ERROR and "unspecified launch failure" in verdict.message and judged.looks


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("2 MiB"),
        DriverError("cuMemCreate: ECC_UNCORRECTABLE"),
        UsageError("no NVIDIA device '1'"),
    ],
)
def test_a_device_that_takes_no_worker_is_no_fault_of_the_problems(judged: Any, error: Exception) -> None:
    """Others may have filled it, and nothing of the problem ran."""
    assert judged(begin=raising(error)).status is Status.INFRA_ERROR and judged.looks


def test_the_wait_for_the_look_is_told(judged: Any) -> None:
    """A run ends a judge that is silent for long, and others may have the device for an hour."""
    said: list[str] = []
    at: list[str] = []
    judged(
        examine=raising(Ended(Status.TIMEOUT, Phase.CHECK, "no answer")), on_phase=said.append,
        look=lambda *_: at.append(said[-1]),
    )  # fmt: skip
    assert at == [WAITING]


def test_a_look_that_cannot_be_made_costs_no_verdict(judged: Any) -> None:
    examine = raising(Ended(Status.TIMEOUT, Phase.CHECK, "no answer"))
    look = raising(BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"))
    assert judged(examine=examine, look=look).status is Status.TIMEOUT


def test_the_float64_model_is_back_on_the_device_when_the_host_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that neither holds is skipped, and the next one is asked as ever."""
    exam = Exam(PROBLEM, torch.float32, torch.device("cpu"), Plan().tolerance)
    device: Any = SimpleNamespace(type="gpu")
    exam.device = device
    moves: list[Any] = []
    exam.exact = SimpleNamespace(to=moves.append)  # type: ignore[assignment]
    errors = [torch.OutOfMemoryError("the GPU"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
    monkeypatch.setattr(exam, "_exact", lambda *_: raising(errors.pop(0))())
    with pytest.raises(RuntimeError, match="can't allocate"):
        exam.exact_answer([])
    assert moves == [torch.device("cpu"), device]


def test_a_gpu_whose_node_has_gone_is_unfit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witness, "standing", raising(UsageError("no NVIDIA device '1'")))
    assert witness.fallen(SandboxKind.NATIVE, "cuda:1") == "cuda:1: no NVIDIA device '1'"


@pytest.mark.parametrize("ending", ["the judge", "a worker"])
@pytest.mark.parametrize("reference_too", [True, False])
def test_who_runs_out_of_memory_as_the_reference_does_is_not_to_blame(
    judged: Any, ending: str, reference_too: bool
) -> None:
    """On an H100 of 80 GB six of KernelBench's references were `out_of_memory` in the solution's place."""
    asked: list[Any] = []

    def examine(case: Any, built: Any, candidate: Any, open_baseline: Any, found: Any) -> Any:
        asked.append(case)
        found.phase = Phase.CHECK
        if len(asked) == 1 or reference_too:
            if ending == "the judge":
                raise torch.OutOfMemoryError("7 GiB")
            raise Ended(Status.OUT_OF_MEMORY, Phase.CHECK, "CUDA out of memory")
        raise Ended(Status.TIMEOUT, Phase.CHECK, "no answer")

    verdict = judged(examine=examine)
    assert verdict.status is (Status.INFRA_ERROR if reference_too else Status.OUT_OF_MEMORY)
    assert ("too large for this machine" in verdict.message) is reference_too and judged.looks
    own, reference = asked
    assert (own.solution.text, reference.solution.text) == ("s", "p\n\n\nModelNew = Model\n")
    assert own.build is not None and reference.build is None, "which is not the solution's"
    assert (own.last, reference.last) == (Phase.TIME, Phase.CHECK) and reference.plan.seconds == 0


@pytest.mark.parametrize("is_crowded", [True, False])
@pytest.mark.parametrize("reference", [Status.INCORRECT_VALUE, Status.OUT_OF_MEMORY, Status.PASSED])
def test_a_wrong_answer_where_the_reference_gives_one_too_is_the_machines(
    judged: Any, is_crowded: bool, reference: Status
) -> None:
    """Of a convolution of 14 GB cuDNN computed in TF32 where a worker had little room, and in fp32 in the judge."""
    asked: list[Phase] = []

    def examine(case: Any, built: Any, candidate: Any, open_baseline: Any, found: Any) -> Any:
        asked.append(case.last)
        found.phase, found.is_crowded = Phase.TIME, is_crowded
        status = Status.INCORRECT_VALUE if len(asked) == 1 else reference
        if status is not Status.PASSED:
            raise End(status, "it differs")

    verdict = judged(examine=examine)
    excused = is_crowded and reference is not Status.PASSED
    assert verdict.status is (Status.INFRA_ERROR if excused else Status.INCORRECT_VALUE)
    assert verdict.message.startswith(TOO_LARGE) is excused and len(asked) == 1 + is_crowded


def test_who_says_so_before_there_was_anything_to_take_is_not_excused(judged: Any) -> None:
    """Whoever raised a MemoryError while it was built or loaded had no verdict where the reference is too large."""
    asked: list[Phase] = []

    def examine(case: Any, built: Any, candidate: Any, open_baseline: Any, found: Any) -> Any:
        asked.append(case.last)
        if len(asked) > 1:
            return None  # the reference runs out of memory later, if at all
        found.phase = Phase.LOAD
        raise Ended(Status.OUT_OF_MEMORY, Phase.LOAD, "MemoryError")

    assert judged(examine=examine).status is Status.OUT_OF_MEMORY and asked == [Phase.TIME, Phase.LOAD]
    asked.clear()
    verdict = judged(examine=raising(Ended(Status.OUT_OF_MEMORY, Phase.COMPILE, "killed")))
    assert verdict.status is Status.OUT_OF_MEMORY


def test_a_reference_that_nobody_could_ask_excuses_for_now(judged: Any) -> None:
    asked: list[Phase] = []

    def examine(case: Any, built: Any, candidate: Any, open_baseline: Any, found: Any) -> Any:
        asked.append(case.last)
        found.phase = Phase.CHECK
        if len(asked) == 1:
            raise torch.OutOfMemoryError("7 GiB")
        raise UsageError("no NVIDIA device '1'")

    verdict = judged(examine=examine)
    assert verdict.status is Status.INFRA_ERROR and "not known: no NVIDIA device" in verdict.message
    assert not verdict.message.startswith(TOO_LARGE), "so it is tried again"


def test_room_is_made_before_the_reference_waits_for_the_device(judged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first attempt had lies idle in the judge's allocator, and another judge may come first."""
    order: list[str] = []
    turn = evaluation.turn
    monkeypatch.setattr(evaluation, "turn", lambda *a: order.append("turn") or turn(*a))
    monkeypatch.setattr(evaluation, "make_room", lambda *_: order.append("room"))

    def examine(case: Any, built: Any, candidate: Any, open_baseline: Any, found: Any) -> Any:
        found.phase = Phase.CHECK
        raise torch.OutOfMemoryError("7 GiB")

    judged(examine=examine)
    assert order[:4] == ["turn", "room", "room", "turn"]


def test_a_baseline_without_room_is_the_solutions_until_the_reference_has_none() -> None:
    with pytest.raises(End) as raised, blameless():
        raise Ended(Status.OUT_OF_MEMORY, Phase.TIME, "CUDA out of memory")
    assert raised.value.status is Status.OUT_OF_MEMORY
    with pytest.raises(End) as raised, blameless():
        raise Ended(Status.CRASHED, Phase.TIME, "signal 11")
    assert raised.value.status is Status.INFRA_ERROR
