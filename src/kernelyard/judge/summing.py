"""What sums are off by that one loop in fp32 adds up, and the answer that is made of such sums.

A layer norm takes a row's mean off: by one loop over 4096 numbers of one sign it is off by up to 40 half ulps of its
own size, and so is all that is left, which may be a quarter of that mean. No share of the answer's largest element
tells this. So float64 is asked twice more, with every sum and mean in it off as a plain loop's is, and as much to the
other side: where a comparison turns on a sum, an element is another by one of them alone, and no longer ruler for it.
"""

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch.utils._python_dispatch import TorchDispatchMode

from kernelyard.core.errors import FAULTS
from kernelyard.judge.question import Question
from kernelyard.judge.shaking import FEW

SHARE = 6.0
"""Half ulps are the square root of as many numbers over this: eight of these are twice what such a sum is off by."""
MOST = 64.0
"""Half ulps: eight of these are 3e-5 of the largest element."""
PARTS = 1024
"""Of a few elements a grid adds up parts: so many, one after another, are off by 20 half ulps at most. In bf16 the mean
square of a million differences is off by 200, but a mean of 16 million numbers by 5."""

HALF_ULP = torch.finfo(torch.float32).eps / 2

aten = torch.ops.aten
SUMS = ("mean", "sum", "var_mean")
# What takes a mean off inside of one operation, in torch's own terms, by its `var_mean`.
NORMS: dict[Any, Callable[..., Any]] = get_decompositions(
    [
        aten.native_layer_norm,
        aten.native_group_norm,
        aten.native_batch_norm,
        aten.cudnn_batch_norm,
        aten._native_batch_norm_legit,
    ]
)


def rounding(dtype: torch.dtype, terms: float) -> float:
    """The relative error that is nothing, of an answer in `dtype` each element of which is made of so many numbers.

    Halves are added up in fp32, whose rounding does not show in them.
    """
    own = torch.finfo(dtype).eps / 2
    return max(own, min(own, HALF_ULP) * min(math.sqrt(terms) / SHARE, MOST))


def with_sums_off(
    question: Question, most: float, exact_answer: Callable[[list[Any]], list[Tensor]]
) -> tuple[float, Question] | None:
    """Over how many numbers its longest sum is, and the question with a ruler as long as its sums make it, if each over
    `most` numbers or fewer is off as a loop's is. None where float64 asks torch for none, and where all answers are
    halves or integers: a loop's rounding does not show in them, and no coarser dtype bounds that ruler.
    """
    numbers = [own.dtype for own in question.honest if own.is_floating_point()]
    half_ulp = min((torch.finfo(dtype).eps / 2 for dtype in numbers), default=math.inf)
    if half_ulp > HALF_ULP:
        return None
    seed = secrets.randbits(31)
    answers = []
    try:
        for size in (half_ulp, -half_ulp):
            with _SumsOff(most, size, seed) as sums:
                answers.append(exact_answer(question.arguments))
            if not sums.longest:
                return None
    except FAULTS:
        return None
    # Of a look at parts the answer is theirs, and the arguments are not.
    if any([one.shape for one in answer] != [one.shape for one in question.reference] for answer in answers):
        return None
    own = question.ruler or (None,) * len(question.names)
    held = zip(question.honest, question.reference, own, *answers, strict=True)
    return sums.longest, replace(question, ruler=tuple(_longer(*each) for each in held))


def _longer(honest: Tensor, reference: Tensor, ruler: Tensor | None, up: Tensor, down: Tensor) -> Tensor | None:
    """The longer of two rulers, element by element; of the second the shorter side.

    Of a few numbers as it was: in one number a coarse answer is right by luck.
    """
    if not honest.is_floating_point() or honest.numel() <= FEW:
        return ruler
    held = (honest if ruler is None else ruler).to(reference.device).double()
    off = torch.minimum((up.to(reference.device) - reference).abs(), (down.to(reference.device) - reference).abs())
    error = torch.maximum((held - reference).abs(), off)
    # Where either is no number the ruler is as it was.
    return torch.where(error.isfinite(), reference + error, held)


class _SumsOff(TorchDispatchMode):
    """Every sum and mean that torch is asked for is off as one loop's is, by so many times `size`."""

    def __init__(self, most: float, size: float, seed: int) -> None:
        super().__init__()
        self._most, self._size, self._seed = most, size, seed
        self.longest = 0.0
        """Numbers, of the longest of them."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func in NORMS:
            with self:
                return NORMS[func](*args, **kwargs)
        answer = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name not in SUMS:
            return answer
        # What a variance is off by is a share of itself, and not magnified here.
        *variance, added_up = answer if name == "var_mean" else (answer,)
        if not (args[0].is_floating_point() and added_up.is_floating_point()):
            return answer
        n = args[0].numel() / max(added_up.numel(), 1)
        counted = min(n, PARTS) if added_up.numel() <= FEW else n
        if not 1 < counted <= self._most:
            return answer
        self.longest = max(self.longest, counted)
        self._seed += 1
        dims = args[1] if len(args) > 1 else kwargs.get("dim")
        off = (self._size * loops_error(args[0], dims, self._seed)).view(added_up.shape)
        added_up = added_up + (off if name == "sum" else off / n)
        return (*variance, added_up) if variance else added_up


def loops_error(x: Tensor, dims: Sequence[int] | None, seed: int) -> Tensor:
    """What each sum of `x` over `dims` is off by, of either sign by `seed`, one after another; in half ulps of one.

    The root of the sum of the squares of all partial sums over 12: of n numbers of one sign sqrt(n) / 6 of their sum,
    as `rounding` has it, and of as many at most as are allowed there.
    """
    over = {dim % x.dim() for dim in dims} if dims else set(range(x.dim()))
    kept = [dim for dim in range(x.dim()) if dim not in over]
    rows = x.permute(*kept, *sorted(over)).reshape(math.prod(x.shape[dim] for dim in kept), -1)
    n = rows.shape[1]
    counted = min(n, PARTS if rows.shape[0] <= FEW else n, (MOST * SHARE) ** 2)
    size = rows.cumsum(1).square_().sum(1).mul_(counted / n / 12).sqrt_()
    generator = torch.Generator(x.device).manual_seed(seed)
    return torch.where(torch.rand(size.shape, generator=generator, device=x.device) < 0.5, -size, size)
