"""Deep references, whose inputs fade from layer to layer, and the gain that their weights get."""

from dataclasses import replace

import pytest
import torch
from honest import positive, problem
from test_stress import exam_of
from torch import Tensor, nn

from kernelyard.core.problem import Problem
from kernelyard.core.verdict import Status
from kernelyard.judge.checking import settle_weights
from kernelyard.judge.exam import Exam
from kernelyard.judge.findings import Findings
from kernelyard.judge.gain import DEEP
from kernelyard.judge.question import Question

WIDTH = 48


class Layers(nn.Module):
    """As torch draws them, or by a gain of the author's own."""

    layers, own_gain = 24, 1.0

    def __init__(self) -> None:
        super().__init__()
        made = [nn.Linear(WIDTH, WIDTH) for _ in range(self.layers)]
        for layer in made:
            layer.weight.data.mul_(self.own_gain)
        self.stack = nn.Sequential(*(part for layer in made for part in (layer, nn.ReLU())), nn.Linear(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.stack(x)  # type: ignore[no-any-return]


class Few(Layers):
    layers = DEEP - 2  # and one more


class Drawn(Layers):
    own_gain = 6**0.5


def made_of(model: type[nn.Module], **declared: object) -> Problem:
    return replace(problem(torch.relu, positive(16, WIDTH), **declared), model_class=model)


def passes(exam: Exam, question: Question, *arguments: Tensor) -> bool:
    with torch.no_grad():
        return exam.mark_values(question, [exam.model(*arguments)]).status is Status.PASSED


def test_whoever_never_reads_a_deep_networks_input_is_wrong() -> None:
    """By the constructor's weights the answer is that of the last biases."""
    exam, first = exam_of(made_of(Layers))
    assert passes(exam, first, *first.arguments)
    assert not passes(exam, first, torch.zeros(16, WIDTH))
    faded, asked = exam_of(made_of(Layers, no_stress=frozenset({"weights"})))
    assert not faded.gain.by and passes(faded, asked, torch.zeros(16, WIDTH))


def test_both_models_have_the_gain() -> None:
    exam, _ = exam_of(made_of(Layers))
    assert len(exam.gain.by) == Layers.layers + 1
    drawn = exam.problem.make_model([], exam.weight_seed, torch.float32, exam.device).state_dict()
    for name, value in exam.model.state_dict().items():
        assert torch.equal(value, drawn[name] * exam.gain.by.get(name.removesuffix(".weight"), 1.0))
        assert torch.equal(value.double(), exam.exact.state_dict()[name])


def test_halves_have_none() -> None:
    exam = Exam(made_of(Layers), torch.bfloat16, torch.device("cpu"), exam_of(made_of(Few))[0].tolerance)
    exam.first_question()
    assert not exam.gain.by and not exam.has_own_weights


@pytest.mark.parametrize("model", [Few, Drawn])
def test_what_does_not_fade_is_left_alone(model: type[nn.Module]) -> None:
    exam, _ = exam_of(made_of(model))
    assert not exam.gain.by and not exam.has_own_weights


@pytest.mark.parametrize("shape", [(4, 3, 8, 8), (3, 8, 8)], ids=["a batch", "an image"])
def test_convolutions_get_theirs(shape: tuple[int, ...]) -> None:
    class Images(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            down = [nn.Conv2d(3 if i == 0 else 8, 8, 3, padding=1) for i in range(12)]
            self.stack = nn.Sequential(*(part for layer in down for part in (layer, nn.ReLU())))
            self.up = nn.ConvTranspose2d(8, 2, 2, stride=2)

        def forward(self, x: Tensor) -> Tensor:
            return self.up(self.stack(x))  # type: ignore[no-any-return]

    exam, first = exam_of(replace(made_of(Layers), model_class=Images, get_inputs=positive(*shape)))
    assert len(exam.gain.by) == 13 and first.honest[0].std() > 0.25
    assert passes(exam, first, *first.arguments)
    assert not passes(exam, first, torch.zeros(shape))


class Picky(Layers):
    def forward(self, x: Tensor) -> Tensor:
        if self.stack[0].weight.abs().max() > 1.5 / WIDTH**0.5:
            raise ValueError("weights as large as that are a mistake")
        return super().forward(x)


def test_a_reference_that_does_not_bear_a_gain_has_none() -> None:
    exam, first = exam_of(made_of(Picky))
    assert not exam.gain.by and passes(exam, first, *first.arguments)


def test_a_tied_matrix_is_enlarged_once() -> None:
    class Tied(Layers):
        def __init__(self) -> None:
            super().__init__()
            self.stack[4].weight = self.stack[2].weight

    exam, _ = exam_of(made_of(Tied))
    drawn = exam.problem.make_model([], exam.weight_seed, torch.float32, exam.device)
    assert exam.gain.by["stack.2"] > 1 and "stack.4" not in exam.gain.by
    assert torch.equal(exam.model.stack[4].weight, exam.gain.by["stack.2"] * drawn.stack[2].weight)


@pytest.mark.parametrize("weights", ["state_dict", "seed"])
def test_who_cannot_be_given_them_is_held_to_the_constructors(weights: str) -> None:
    exam, first = exam_of(made_of(Layers))
    before = dict(exam.gain.by)
    found = Findings(weights=weights)  # type: ignore[arg-type]
    asked = settle_weights(exam, first, found)
    taken = weights == "state_dict"
    assert exam.gain.by == (before if taken else {})
    assert [flag.name for flag in found.flags] == ([] if taken else ["weights_not_taken"])
    assert passes(exam, asked, *asked.arguments)
    assert exam.usual == pytest.approx(
        [((h - r).abs().max() / r.abs().max()).item() for h, r in zip(asked.honest, asked.reference, strict=True)]
    )
