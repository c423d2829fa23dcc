"""Whose kernels the float64 answer is computed by, where it is slow."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelyard.core.operator import Tolerance
from kernelyard.judge import convolving, exam
from kernelyard.judge.convolving import cudnn_is_quicker
from kernelyard.judge.exam import Exam
from kernelyard.suites.kernelbench import load_problem

TRANSPOSED = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.ConvTranspose3d(8, 16, 5, stride=2, padding=2)

    def forward(self, x):
        return self.convolution(x)

def get_inputs():
    return [torch.randn(4, 8, 6, 6, 6)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], None]:
    """What an answer takes by cuDNN, and by torch's own kernels."""

    def takes(by_cudnn: float, by_torch: float) -> None:
        def seconds(answer: Callable[[], object], _: torch.device) -> float:
            answer()
            return by_cudnn if torch.backends.cudnn.enabled else by_torch

        monkeypatch.setattr(convolving, "_seconds", seconds)

    return takes


CPU = torch.device("cpu")


def test_the_quicker_kernels_are_taken(clock: Callable[[float, float], None]) -> None:
    clock(0.8, 0.05)
    assert not cudnn_is_quicker(lambda: None, CPU)
    clock(0.05, 0.8)
    assert cudnn_is_quicker(lambda: None, CPU)
    assert torch.backends.cudnn.enabled


def test_columns_that_do_not_fit_are_not_asked_for(clock: Callable[[float, float], None]) -> None:
    def answer() -> None:
        if not torch.backends.cudnn.enabled:
            raise torch.OutOfMemoryError("columns")

    clock(0.8, 0.05)
    assert cudnn_is_quicker(answer, CPU)
    assert torch.backends.cudnn.enabled


def test_where_columns_fit_no_longer_cudnn_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "problem.py").write_text(TRANSPOSED)
    made = Exam(load_problem(tmp_path / "problem.py"), torch.float32, CPU, Tolerance())
    arguments = made.arguments()
    (expected,) = made.exact_answer(arguments)
    exact, asked = Exam._exact, list[bool]()

    def in_little_room(self: Exam, *given: object) -> list[torch.Tensor]:
        asked.append(torch.backends.cudnn.enabled)
        if not torch.backends.cudnn.enabled:
            raise torch.OutOfMemoryError("columns")
        return exact(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(exam.Exam, "_exact", in_little_room)
    made.by_cudnn = False
    (answer,) = made.exact_answer(arguments)
    assert asked == [False, True] and made.by_cudnn and torch.equal(answer, expected)


@pytest.mark.gpu
def test_a_transposed_convolution_has_the_same_float64_answer_by_both(tmp_path: Path, device: torch.device) -> None:
    (tmp_path / "problem.py").write_text(TRANSPOSED)
    made = Exam(load_problem(tmp_path / "problem.py"), torch.float32, device, Tolerance())
    arguments = made.arguments()
    (by_cudnn,) = made.exact_answer(arguments)
    made.by_cudnn = False
    (by_torch,) = made.exact_answer(arguments)
    assert (by_cudnn - by_torch).abs().max() <= 1e-13 * by_cudnn.abs().max()
