"""The gain of a deep reference's layers, so that its answer hangs on its inputs.

Behind a layer as torch draws it and a ReLU, numbers differ from input to input by 1 / 2.4 of what they did before it,
and of twenty layers the last biases are the answer: zeros for an image passed in KernelBench's MobileNets and
EfficientNets (3/19, 3/20, 3/22 to 3/24), and half of the layers in bf16 in others. Larger weights mend that.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from kernelyard.core.errors import FAULTS
from kernelyard.judge.answers import deviation
from kernelyard.judge.question import Question

DEEP = 4
"""Layers of a reference whose inputs may fade: of three, one part in fifteen is left."""
VARIES = 1 / 16
"""Of the answer, by which it differs from the one to other inputs: enough in any dtype."""
CLEARER = 8.0
"""By so much more, in units of the honest error, it has to differ with a gain: some answers differ by little anyhow."""
LARGEST = 8.0
"""Of what a layer returns, a mean that hangs on nothing included: of larger numbers a sigmoid is one."""

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@dataclass(frozen=True)
class Contrast:
    """How an answer differs from one to other inputs: of several outputs, the one that differs least."""

    of_size: float
    of_error: float

    def is_clearer(self, other: "Contrast") -> bool:
        return self.of_error > CLEARER * other.of_error


def contrast(question: Question, other: Sequence[Tensor]) -> Contrast | None:
    """None where sizes hang on values, or nothing is floating-point."""
    found = []
    for own, exact, another in zip(question.honest, question.reference, other, strict=True):
        if not own.is_floating_point() or not own.numel():
            continue
        if own.shape != another.shape:
            return None
        size = max(deviation(exact, torch.zeros_like(exact)), torch.finfo(torch.float32).tiny)
        error = max(deviation(own, exact), torch.finfo(own.dtype).eps / 2 * size)
        differs = deviation(another, exact)
        found.append(Contrast(differs / size, differs / error))
    return min(found, key=lambda each: each.of_error, default=None)


@dataclass
class Gain:
    """By what the weights of layers are larger than the constructor's, by name: powers of two, which round nothing."""

    by: dict[str, float] = field(default_factory=dict)

    def apply(self, model: nn.Module, *, undo: bool = False) -> None:
        """Enlarge a model's, or take that back."""
        for name, by in self.by.items():
            model.get_submodule(name).weight.detach().mul_(1 / by if undo else by)  # type: ignore[operator]


def layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Those with a weight of their own, a shared one once."""
    seen: set[int] = set()
    for name, module in model.named_modules():
        weight = module._parameters.get("weight")
        if isinstance(module, LAYERS) and weight is not None and id(weight) not in seen:
            seen.add(id(weight))
            yield name, module


def clearest(
    model: nn.Module,
    exact: nn.Module,
    question: Question,
    again: Callable[[], Question],
    other: Callable[[], Sequence[Tensor]],
) -> tuple[Gain, Question]:
    """The gain by which other inputs have another answer, if as it is they have not, and the question with it.

    `again` asks the question with the weights that there are, and `other` answers the same other inputs; a reference
    that raises, or has an infinity for an answer, does not bear a gain.
    """
    if len(list(layers(model))) < DEEP:
        return Gain(), question
    before = contrast(question, other())
    if before is None or before.of_size >= VARIES:
        return Gain(), question
    gain = _found(model, other)
    gain.apply(model)
    gain.apply(exact)
    try:
        made = again()
        after = contrast(made, other())
        if after and after.is_clearer(before):
            return gain, made
    except FAULTS:
        pass
    gain.apply(model, undo=True)
    gain.apply(exact, undo=True)
    return Gain(), question


def _found(model: nn.Module, call: Callable[[], object]) -> Gain:
    """What every layer's numbers lack of a deviation of one, when those before it have theirs."""
    gain = Gain()

    def named(name: str) -> Callable[..., Tensor | None]:
        def enlarged(layer: nn.Module, _: Any, out: Any) -> Tensor | None:
            if name in gain.by or not isinstance(out, Tensor) or not out.is_floating_point():
                return None
            gain.by[name] = by = _lacking(layer, out.detach())
            bias = _bias_of(layer, out)
            return (out - bias) * by + bias

        return enlarged

    with ExitStack() as hooks:
        for name, layer in layers(model):
            hooks.callback(layer.register_forward_hook(named(name)).remove)
        try:
            call()
        except FAULTS:
            return Gain()
    return gain


def _lacking(layer: nn.Module, out: Tensor) -> float:
    """By a channel's own mean: what differs from channel to channel alone says nothing of the input."""
    numbers = out.double().movedim(_channel(layer), 0).flatten(1)
    size = numbers.square().mean().sqrt().item()
    own = (numbers - numbers.mean(1, keepdim=True)).square().mean().sqrt().item()
    if not (own > 0 and size < math.inf):
        return 1.0
    return 2.0 ** max(0, min(round(-math.log2(own)), round(math.log2(LARGEST / size))))


def _channel(layer: nn.Module) -> int:
    """The dimension of the channels of what a layer returns; a convolution may be given no batch."""
    return -1 if isinstance(layer, nn.Linear) else -len(layer.kernel_size) - 1  # type: ignore[arg-type]


def _bias_of(layer: nn.Module, out: Tensor) -> Tensor | float:
    bias = layer._parameters.get("bias")
    if bias is None:
        return 0.0
    return bias.detach().view(-1, *[1] * (-1 - _channel(layer)))
