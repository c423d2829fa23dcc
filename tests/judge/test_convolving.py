"""Whose kernels the float64 answer is computed by, where it is slow."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelyard.core.operator import Tolerance
from kernelyard.judge import convolving
from kernelyard.judge.convolving import some_rows, torchs_own_serve
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


CPU = torch.device("cpu")
HALF, MORE = torch.tensor(0.5, dtype=torch.float64), torch.tensor(0.6, dtype=torch.float64)


@pytest.mark.parametrize(
    ("by_cudnn", "by_torch", "usual", "own", "serve"),
    [
        (0.8, 0.05, HALF, HALF, True),
        (0.05, 0.8, HALF, HALF, False),
        (0.8, 0.05, HALF, MORE, False),
        (0.8, 0.05, HALF, torch.OutOfMemoryError("columns"), False),
        (0.8, 0.05, HALF, RuntimeError("of cuDNN's alone"), False),
        (0.8, 0.05, torch.OutOfMemoryError("all of it"), HALF, False),
    ],
    ids=["quicker", "slower", "another answer", "no room for columns", "no kernel of its own", "no room at all"],
)
def test_torchs_own_kernels_serve_where_they_are_quicker_and_answer_alike(
    by_cudnn: float,
    by_torch: float,
    usual: torch.Tensor | Exception,
    own: torch.Tensor | Exception,
    serve: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def timed(answer: Callable[[], list[torch.Tensor]], _: torch.device) -> tuple[float, list[torch.Tensor]]:
        return by_cudnn if torch.backends.cudnn.enabled else by_torch, answer()

    def answer() -> list[torch.Tensor]:
        made = usual if torch.backends.cudnn.enabled else own
        if isinstance(made, Exception):
            raise made
        return [made]

    monkeypatch.setattr(convolving, "_timed", timed)
    assert torchs_own_serve(answer, CPU) is serve
    assert torch.backends.cudnn.enabled


def test_who_is_quicker_is_told_by_some_rows_where_they_can_be_asked_for_alone() -> None:
    x, scale = torch.arange(32.0).view(16, 2), torch.rand(2)
    (few, whole) = some_rows([x, scale], [x], lambda _: None)
    assert torch.equal(few, x[:2]) and whole is scale

    def knows_how_many(arguments: list[torch.Tensor]) -> None:
        arguments[0].view(16, 2)

    for arguments, answers in (([x], [x]), ([x], [torch.rand(())])):
        assert some_rows(arguments, answers, knows_how_many) is arguments


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

    monkeypatch.setattr(Exam, "_exact", in_little_room)
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
