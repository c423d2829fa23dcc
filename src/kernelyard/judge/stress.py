"""Stressed questions: the problem's own inputs, made hard for a lazy answer and never for an honest one.

A stress changes floating-point inputs only. What the problem's inputs promise by their look is kept: a zero stays a
zero (triangles, masks), a symmetric matrix stays symmetric, a tensor of whole numbers (labels, masks, initial states)
is left alone, and so is a tensor of one element.

A stress is asked only where it is fair, and a stress that is not is skipped by name. Under a stress the ruler of an
answer is twice the largest of four: the honest answer's error; what the float64 answer moves by when every input moves
by one ulp, for no order of summation can be held to less; half an ulp of one (of the problem's own scale where that
is smaller), because exp(x) - 1 and 2 sigmoid(2 x) - 1 are honest and cannot keep small answers better than that; and
the answer times half an ulp of the largest input, because exp(x - logsumexp(x)) is a softmax and holds no more. Twice,
because a stress looks for what is wrong and leaves precision to the problem's own inputs: torch adds up a cumsum in
float64 on a CPU, beside which blocks in fp32 are off 5 times as far.
"""

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor

from kernelyard.core.problem import each_tensor
from kernelyard.judge.compare import CHUNK
from kernelyard.judge.exam import Exam
from kernelyard.judge.parts import largest
from kernelyard.judge.question import Question
from kernelyard.judge.reference import InvalidProblem
from kernelyard.judge.shaking import Unsteady, nonzero_place, shaken_answer, with_changed
from kernelyard.judge.summing import HALF_ULP
from kernelyard.sandbox.wire import named_leaves

SCALES_UP, SCALE_DOWN = (512.0, 64.0, 16.0), 2.0**-10
"""Powers of two, so that scaling rounds nothing. The largest that is fair is asked: KernelBench's inputs are 1 at most,
and what a layer makes of 64 of them stays below 88, up to where a softmax needs no maximum; of 512 the squares are
beyond fp16, and the scores of an attention may be so large that rounding alone decides."""
OUTLIER = 128.0
"""Of inputs that are 1 at most exp is infinite in fp32 then, and of their negations zero."""
SHIFT = 2.0
"""In standard deviations. A variance taken in one pass loses (mean / deviation)**2: a layer norm made of it is off by
53 times the honest error where uniform inputs are shifted by 5, and by 4 times where they are by 2 deviations."""
ROOM = 2.0
CLUSTER = 4
RAGGED_SHARE, RAGGED_SCALE = 8, 8.0
# One changed element: by how many times the largest input, tried in turn until the answer moves beyond the tolerance.
STEPS = (2.0, 64.0)
# Half the answers of an fp32 matrix product are off by 1e-6 of the largest; where a ruler passes this, rounding is
# amplified so much that luck decides who is eight times off. Eight ulps for a dtype whose ulps are larger, and eight
# times what the honest answer is off by anyhow: a convolution in TF32 is off by a thousandth.
ILL_CONDITIONED = 2.0**-12
# Two shaken answers and the honest one: that all three are lucky where ours is not has odds of a few in ten thousand.
SHAKES, ONE_SHAKE = 2, 1 << 22


Change = Callable[[Tensor, Generator], Tensor]


class Unfair(Exception):
    """This stress would be no fair question of this problem; says why."""


@dataclass(frozen=True)
class Stress:
    """One way to change an input."""

    name: str
    changes: tuple[Change, ...]
    """The first is asked that is fair."""
    ties: bool = False
    """It makes equal elements: where an output is an index, several answers are right."""
    exact: bool = False
    """Every sum is exact, so the answer has to be equal, whatever the order."""
    alone: bool = False
    """It changes one input of several: a product of two that are a thousandth is a millionth, beneath all rounding."""


def _scaled(by: float) -> Change:
    return lambda x, _: by * x


def _shifted(x: Tensor, _: Generator) -> Tensor:
    return x + SHIFT * x.std()


def _signs(x: Tensor, generator: Generator) -> Tensor:
    """Half of the elements negated, and every other row well below zero.

    Uniform inputs never are, where a forgotten relu shows; and of a row with numbers above zero a maximum is right that
    begins at zero. An eighth of the largest is beyond what halves may be off by, and moves rows less than a shift.
    """
    flipped = torch.where(torch.rand(x.shape, generator=generator, device=x.device) < 0.5, x, -x)
    rows = slice(_below(2, generator), None, 2)
    flipped[rows] = -(x[rows].abs() * 7 + x.abs().amax()) / 8
    return flipped


def _clustered(x: Tensor, generator: Generator) -> Tensor:
    """Neighbours within a hundredth of one another, twice the largest of the rest."""
    width = min(CLUSTER, x.shape[-1])
    start = _below(x.shape[-1] - width + 1, generator)
    changed = x.clone()
    part = changed[..., start : start + width]
    part.copy_(2 * x.abs().amax() * (1 - torch.rand(part.shape, generator=generator, device=x.device) / 64))
    return changed


def _outliers(x: Tensor, generator: Generator) -> Tensor:
    """Two elements of all, one below and one above the rest: who looks at a sample of them does not see it."""
    changed = x.clone()
    for size in (-OUTLIER, OUTLIER):
        changed.view(-1)[_below(x.numel(), generator)] = size * x.abs().amax()
    return changed


def _ragged(x: Tensor, generator: Generator) -> Tensor:
    """Zeros, but for a large suffix of each row, of a length of its own."""
    width = x.shape[-1]
    longest = max(1, width // RAGGED_SHARE)
    kept = torch.randint(1, longest + 1, (*x.shape[:-1], 1), generator=generator, device=x.device)
    return torch.where(torch.arange(width, device=x.device) >= width - kept, RAGGED_SCALE * x, 0.0)


def _integers(x: Tensor, generator: Generator) -> Tensor:
    """1, 2 and 3, or -2 to 2 without 0 where there are negative inputs: products of two are exact in any dtype."""

    def drawn(low: int, high: int) -> Tensor:
        return torch.randint(low, high, x.shape, generator=generator, device=x.device, dtype=x.dtype)

    if x.amin() >= 0:
        return drawn(1, 4)
    return drawn(1, 3).mul_(drawn(0, 2).mul_(2).sub_(1))


SIGNS = "signs"
STRESSES = (
    Stress("scaled_up", tuple(map(_scaled, SCALES_UP))),
    Stress("scaled_down", (_scaled(SCALE_DOWN),), alone=True),
    Stress(SIGNS, (_signs,)),
    Stress("shifted", (_shifted,)),
    Stress("clustered", (_clustered,), ties=True),
    Stress("outliers", (_outliers,)),
    Stress("ragged", (_ragged,), ties=True),
    Stress("integers", (_integers,), ties=True, exact=True),
)
ONE_ELEMENT = "one_element"
WEIGHTS = "weights"
NAMES = (*(stress.name for stress in STRESSES), ONE_ELEMENT, WEIGHTS)
"""What a problem file may decline in its NO_STRESS."""


def stressed(exam: Exam, stress: Stress, base: list[Any] | None = None, fixed: Sequence[Tensor] = ()) -> Question:
    """A question under a stress, of fresh inputs or of `base`, those that are `fixed` unchanged.

    Raises Unfair where it would not be a fair one.
    """
    _declined(exam, stress.name)
    *harder, mildest = stress.changes
    for change in harder:
        with suppress(Unfair):
            return _changed_by(exam, stress, change, base, fixed)
    return _changed_by(exam, stress, mildest, base, fixed)


def _changed_by(
    exam: Exam, stress: Stress, change: Change, base: list[Any] | None, fixed: Sequence[Tensor]
) -> Question:
    before = exam.arguments() if base is None else base
    arguments = _changed(before, stress, change, fixed)
    new = _new(before, arguments)
    del before  # as much as each of these, of a problem that may take a sixth of the device
    if not stress.exact:
        return _fair(exam, _told_apart(_question(exam, arguments), stress), max(map(largest, new)))
    # A mean of some integers is integral by chance, and then a product with 1/n is honest and inexact: one more is not.
    _must_be_exact(_question(exam, _one_more(new, arguments)), stress)
    return replace(_must_be_exact(_question(exam, arguments), stress), exact=True)


def one_changed(exam: Exam, base: Question) -> Question:
    """`base` with one random input element changed, so that the answer to `base` is wrong. Raises Unfair."""
    _declined(exam, ONE_ELEMENT)
    for step in STEPS:
        made = _fair(exam, _question(exam, _one_changed(base.arguments, step)))
        if not exam.would_pass(made, base.honest):
            return made
        del made  # the next takes as much
    raise Unfair("the answer moves by less than the tolerance")


def _declined(exam: Exam, name: str) -> None:
    if name in exam.problem.no_stress:
        raise Unfair("declined by the problem")


def _question(exam: Exam, arguments: list[Any]) -> Question:
    try:
        return exam.question(arguments)
    except InvalidProblem as error:
        raise Unfair(str(error)) from None


def _told_apart(question: Question, stress: Stress) -> Question:
    if stress.ties and not all(answer.is_floating_point() for answer in question.honest):
        raise Unfair("ties have several right answers")
    return question


def _must_be_exact(question: Question, stress: Stress) -> Question:
    for honest, reference in zip(_told_apart(question, stress).honest, question.reference, strict=True):
        if not all(map(_exact, honest.reshape(-1).split(CHUNK), reference.reshape(-1).split(CHUNK))):
            raise Unfair("the answer to small integers is not exact")
    return question


def _exact(honest: Tensor, reference: Tensor) -> bool:
    """Integral, equal in both precisions, and with room for partial sums larger than the result."""
    limit = 0.5 / torch.finfo(honest.dtype).eps
    whole = reference == reference.round()
    answered = honest.to(reference.device).double()
    return bool((whole & (answered == reference) & (reference.abs() < limit)).all())


def _fair(exam: Exam, question: Question, size: float = 1.0) -> Question:
    """The question with its ruler. Raises Unfair where rounding is amplified too much to judge by.

    `size`: of what an honest answer may hold on its way, where that is larger than one.
    """
    shakes = SHAKES if sum(answer.numel() for answer in question.honest) <= ONE_SHAKE else 1
    # exp(x - log(sum(exp(x)))) is an honest softmax: what it takes exp of is rounded as numbers as large as x are, in
    # fp32 (kernels for halves hold it so too), and no ulp of an input moves an element that outweighs its row. Held to
    # less, it was refused in 7 of 1000 questions of 32 rows, where no two elements of a row were near one another.
    held = min(ILL_CONDITIONED, HALF_ULP * max(size, 1.0))
    rulers = []
    for honest, reference, noise in zip(question.honest, question.reference, exam.noise, strict=True):
        ruler = torch.empty(honest.shape, dtype=torch.float64, device=reference.device).copy_(honest)
        ruler.sub_(reference).abs_().clamp_(min=noise)
        if honest.is_floating_point():
            for own, exact in zip(ruler.view(-1).split(CHUNK), reference.reshape(-1).split(CHUNK), strict=True):
                torch.maximum(own, exact.abs().mul_(held), out=own)
        rulers.append(ruler)
    for _ in range(shakes):
        for where, arguments in exam.pieces(question.arguments):
            there = [ruler[where] for ruler in rulers]
            try:
                answers = shaken_answer(arguments, there, exam.dtype, exam.exact_answer)
            except Unsteady as reason:
                raise Unfair(str(reason)) from None
            for own, reference, moved in zip(there, question.reference, answers, strict=True):
                torch.maximum(own, (moved.to(reference.device) - reference[where]).abs_(), out=own)
    for honest, reference, ruler, usual in zip(question.honest, question.reference, rulers, exam.usual, strict=True):
        if not honest.numel():
            continue
        if not honest.is_floating_point():
            if bool((ruler > 0).any()):
                raise Unfair("a discrete answer on an edge")
            continue
        limit = max(ILL_CONDITIONED, 8 * torch.finfo(honest.dtype).eps, 8 * usual)
        scale, worst = largest(reference), largest(ruler)
        if not worst <= limit * scale:
            raise Unfair(f"rounding alone moves the answer by {worst:.2g} of {scale:.2g}")
    for reference, ruler in zip(question.reference, rulers, strict=True):
        ruler.mul_(ROOM).add_(reference)
    return replace(question, ruler=tuple(rulers))


def _changed(arguments: list[Any], stress: Stress, change: Change, fixed: Sequence[Tensor]) -> list[Any]:
    open_ = [value for value in _open(arguments) if not any(value is one for one in fixed)]
    if not open_:
        raise Unfair("no input that may be changed")
    chosen = [secrets.choice(open_)] if stress.alone else open_
    changed = {id(value): _under(value, change) for value in chosen}
    return list(each_tensor(arguments, lambda x: changed.get(id(x), x)))


def _under(value: Tensor, change: Change) -> Tensor:
    generator = Generator(value.device).manual_seed(secrets.randbits(63))
    changed = change(value.float(), generator).to(value.dtype)
    changed = torch.where(value == 0, value, changed)
    return changed.triu() + changed.triu(1).mT if _symmetric(value) else changed


def _one_more(changed: list[Tensor], arguments: list[Any]) -> list[Any]:
    """`arguments`, and in each of those of them that were `changed` one element larger by one."""
    larger = {}
    for value in changed:
        flat = value.reshape(-1).clone()
        flat[flat.abs().argmax()] += 1
        larger[id(value)] = flat.view(value.shape)
    return list(each_tensor(arguments, lambda x: larger.get(id(x), x)))


def _new(before: list[Any], after: list[Any]) -> list[Tensor]:
    """The tensors of `after` that are not `before`'s."""
    kept = {id(value) for _, value in named_leaves(before)}
    return [value for _, value in named_leaves(after) if isinstance(value, Tensor) and id(value) not in kept]


def _one_changed(arguments: list[Any], step: float) -> list[Any]:
    open_ = _open(arguments)
    if not open_:
        raise Unfair("no input that may be changed")
    chosen = secrets.choice(open_)
    changed = chosen.clone()
    nonzero = nonzero_place(chosen)
    if nonzero is None:
        raise Unfair("zeros stay zeros, and there is little else")
    place = torch.unravel_index(torch.tensor(nonzero), chosen.shape)
    changed[place] += step * chosen.abs().amax()
    if _symmetric(chosen):
        mirrored = (*place[:-2], place[-1], place[-2])
        changed[mirrored] = changed[place]
    return with_changed(arguments, chosen, changed)


def _open(arguments: list[Any]) -> list[Tensor]:
    """The tensors that a stress may change."""
    return [value for _, value in named_leaves(arguments) if _may_change(value)]


def _may_change(value: Any) -> bool:
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.numel() < 2:
        return False
    return not bool((value == value.round()).all())


def _symmetric(value: Tensor) -> bool:
    return value.dim() >= 2 and value.shape[-1] == value.shape[-2] and torch.equal(value, value.mT)


def _below(bound: int, generator: Generator) -> int:
    return int(torch.randint(bound, (), generator=generator, device=generator.device))
