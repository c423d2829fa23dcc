"""How far an answer is from float64, by the honest answer's own distance."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernelyard.core.operator import Tolerance
from kernelyard.core.verdict import ErrorFigures, Status
from kernelyard.core.workload import dtype_name

# Relative errors are never taken over less: below it fp32 arithmetic flushes to zero, which is no error of any use
# (smallest normal of fp32 over its eps: 1.2e-38 / 1.2e-7).
TINY = 1e-31
# The typical error is the median of this many elements; the median of 2**30 would sort 8 GB.
SAMPLE = 1 << 20
# Elements compared at a time: 2**26 float64 temporaries are 0.5 GiB each, so that outputs of 6 GB fit beside them.
CHUNK = 1 << 26
SHOWN = 5
# 2**64 over the golden ratio, as int64 has it: a multiplication by it spreads every bit (Knuth 6.4).
_ODD = 0x9E3779B97F4A7C15 - (1 << 64)


@dataclass(frozen=True)
class Comparison:
    """One output held against the reference."""

    status: Status
    message: str
    """One line; empty for a pass."""
    report: str = ""
    """How many elements differ, the worst, and the first five; empty for a pass."""
    figures: ErrorFigures | None = None
    """None where shape or dtype already differ."""

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED


@dataclass
class _Gathered:
    """Of one tensor or error: the largest, the largest over the reference, and the sum of squares, chunk by chunk."""

    max_abs: float = 0.0
    max_rel: float = 0.0
    squares: float = 0.0
    unequal: int = 0
    """Elements that are another integer or truth value."""

    def add(self, max_abs: float, norm: float, max_rel: float = 0.0) -> None:
        self.max_abs = max(self.max_abs, max_abs)
        self.max_rel = max(self.max_rel, max_rel)
        self.squares += norm * norm  # of 1e200 an infinity, where norm**2 raises OverflowError

    def rms(self, count: int) -> float:
        return (self.squares / max(count, 1)) ** 0.5


@dataclass(frozen=True)
class Yardstick:
    """What float64 and an honest answer say of an output: the same for every answer that is held against them."""

    expected: _Gathered
    theirs: _Gathered
    """The honest answer's errors, or those of what stands in for it."""
    typical: float
    half_ulp: float
    bitwise: bool
    """Whether these are the errors of the honest answer itself, all of them numbers: then they are those of any answer
    that has its bits."""
    lost: "tuple[Tensor, Yardstick] | None" = None
    """Where the honest answer is no number and the dtype has one for float64's, and the yardstick there, for which that
    number stands in: rounding, beside the honest errors elsewhere. None where there is no such element."""

    @classmethod
    def of(cls, honest: Tensor, reference: Tensor, ruler: Tensor | None = None, rounding: float = 0.0) -> "Yardstick":
        """`ruler` stands in for the honest answer's values: a float64 tensor as far from `reference` as an answer may
        well be. `rounding`: a relative error that is nothing, where that is more than half an ulp."""
        if not honest.dtype.is_floating_point:
            # No ruler: a stress asks for these only where nothing moves them, and the honest answer is float64's.
            return cls(_Gathered(), _steps(honest, reference), 0.0, 0.0, bitwise=True)
        half_ulp = max(torch.finfo(honest.dtype).eps / 2, rounding)
        answer, exact = (honest if ruler is None else ruler).detach().reshape(-1), reference.detach().reshape(-1)
        typical = _typical(answer, exact, half_ulp)
        expected, theirs, whole = _Gathered(), _Gathered(), True
        for _, h, r in _pieces(answer, exact):
            errors, numbers, all_are = _of_numbers(h, r, typical)
            expected.add(*_size(numbers))
            theirs.add(*errors)
            whole &= all_are
        made = cls(expected, theirs, typical, half_ulp, whole and ruler is None)
        lost = None if whole else _lost(answer, exact, honest.dtype)
        if lost is None:
            return made
        filled = torch.where(lost, exact.to(honest.dtype).double(), answer.to(exact.device))
        return replace(made, lost=(lost.view(reference.shape), cls.of(honest, reference, filled, rounding)))

    @property
    def unit(self) -> float:
        """Of the largest error."""
        return max(self.theirs.max_abs, self.half_ulp * self.expected.max_abs)


@dataclass(frozen=True)
class _Bounds:
    """When a single element is outside."""

    absolute: float
    relative: float
    typical: float
    noise: float
    """An error that the honest answer makes everywhere condemns no element, however small the element is."""
    allow_nonfinite: bool

    def outside(self, got: Tensor, reference: Tensor, error: Tensor) -> Tensor:
        limit = (self.relative * (reference.abs() + self.typical) + self.noise).clamp(max=self.absolute)
        wrong = (error > limit) | ~torch.isfinite(got)
        met = _same_kind(got, reference) if self.allow_nonfinite else torch.zeros_like(wrong)
        return torch.where(torch.isfinite(reference), wrong, ~met)


@dataclass(frozen=True)
class _Steps:
    """When a single integer or truth value is outside."""

    allowed: float

    def outside(self, _got: Tensor, _reference: Tensor, error: Tensor) -> Tensor:
        return error > self.allowed


def compare(
    name: str,
    got: Tensor,
    reference: Tensor,
    honest: Tensor,
    tolerance: Tolerance,
    yardstick: Yardstick | None = None,
    *,
    allow_nonfinite: bool = False,
) -> Comparison:
    """Hold `got` against the float64 `reference`, with `honest` (eager, same dtype) as the ruler.

    Where the answers are integers or truth values, so is the reference (int64), and the unequal are counted.

    `yardstick`: what those two say, where that is known, or what another ruler does. A non-finite element of the
    reference fails unless `allow_nonfinite`; then it has to be met exactly. Where the reference is a number, only a
    number is right, whatever the honest answer is: half precision overflows on the way to numbers that it holds.
    """
    if got.shape != honest.shape:
        line = f"{name}: shape {tuple(got.shape)}, expected {tuple(honest.shape)}"
        return Comparison(Status.INCORRECT_SHAPE, line, line)
    if got.dtype != honest.dtype:
        line = f"{name}: dtype {dtype_name(got.dtype)}, expected {dtype_name(honest.dtype)}"
        return Comparison(Status.INCORRECT_DTYPE, line, line)

    yardstick = yardstick or Yardstick.of(honest, reference)
    if not honest.dtype.is_floating_point:
        return _compare_discrete(name, got, reference, honest, tolerance, yardstick.theirs)
    if yardstick.lost:
        # Either part by its own yardstick, as if all else were zero and met; the worse is told.
        lost, rounded = yardstick.lost
        held = []
        for met, ruler in ((lost, replace(yardstick, lost=None)), (~lost, rounded)):
            part, exact = (one.masked_fill(met.to(one.device), 0) for one in (got, reference))
            held.append(compare(name, part, exact, honest, tolerance, ruler, allow_nonfinite=allow_nonfinite))
        return max(held, key=lambda one: (not one.passed, one.figures.over_honest if one.figures else 0.0))
    expected, theirs, typical, half_ulp = yardstick.expected, yardstick.theirs, yardstick.typical, yardstick.half_ulp
    flat = [tensor.detach().reshape(-1) for tensor in (got, reference)]
    count = flat[0].numel()
    bad_kind = 0
    if yardstick.bitwise and same_bits(got, honest):
        ours = theirs
    else:
        ours, bad_kind = _errors(flat, typical, allow_nonfinite=allow_nonfinite)

    unit_abs = yardstick.unit
    unit_rms = max(theirs.rms(count), half_ulp * expected.rms(count))
    allowed_abs = tolerance.multiple * unit_abs
    allowed_rms = tolerance.multiple * unit_rms
    allowed_rel = (
        tolerance.multiple * max(theirs.max_rel, half_ulp) + tolerance.fp32_ulps * torch.finfo(torch.float32).eps
    )

    mismatched, shown, worst = 0, "", 0.0
    bounds = _Bounds(allowed_abs, allowed_rel, typical, tolerance.multiple * typical, allow_nonfinite)
    if bad_kind or ours.max_abs > allowed_abs or ours.max_rel > allowed_rel:
        mismatched, shown, worst = _mismatches(flat, got.shape, bounds)
    if not mismatched and ours.rms(count) > allowed_rms:
        # No element is outside by itself, all of them together are: name those that push the mean up.
        mismatched, shown, worst = _mismatches(flat, got.shape, replace(bounds, absolute=allowed_rms))
    over = math.nan if bad_kind else max(_over(ours.max_abs, unit_abs), _over(ours.rms(count), unit_rms))
    if bad_kind:
        ours = _Gathered(math.nan, math.nan, math.nan)
    return _told(name, ours, theirs, over, tolerance.multiple, count, (mismatched, shown, worst))


def _compare_discrete(
    name: str, got: Tensor, reference: Tensor, honest: Tensor, tolerance: Tolerance, theirs: _Gathered
) -> Comparison:
    """Whoever adds up in another order has other elements on an edge, but not many more: `multiple` times as many.

    By how much one may be off: a difference of 1 may be an edge and no error, and only what is beyond it is multiplied.
    Where two elements are as good as equal, the index of either is right, however far apart they lie: int64, the dtype
    of indices, is held to the count alone.
    """
    flat = [tensor.detach().reshape(-1) for tensor in (got, reference)]
    count = flat[0].numel()
    ours = theirs if same_bits(got, honest) else _steps(*flat)
    edge = min(theirs.max_abs, 1.0)
    allowed = math.inf if honest.dtype is torch.int64 else edge + tolerance.multiple * (theirs.max_abs - edge)
    if ours.unequal > tolerance.multiple * theirs.unequal:
        allowed = 0.0
    within = ours.max_abs <= allowed
    off = (0, "", 0.0) if within else _mismatches(flat, got.shape, _Steps(allowed))
    return _told(name, ours, theirs, _over(ours.unequal, theirs.unequal), tolerance.multiple, count, off)


def _told(
    name: str, ours: _Gathered, theirs: _Gathered, over: float, allowed: float, count: int, off: tuple[int, str, float]
) -> Comparison:
    mismatched, shown, worst = off
    figures = ErrorFigures(
        output=name,
        max_abs=ours.max_abs,
        honest_max_abs=theirs.max_abs,
        rms=ours.rms(count),
        honest_rms=theirs.rms(count),
        max_rel=ours.max_rel,
        honest_max_rel=theirs.max_rel,
        over_honest=over,
        allowed=allowed,
        mismatched=mismatched,
        elements=count,
    )
    if not mismatched:
        return Comparison(Status.PASSED, "", figures=figures)
    line = f"{name}: {mismatched} of {count} elements differ ({100 * mismatched / count:.3g} %), worst by {worst:.4g}"
    return Comparison(Status.INCORRECT_VALUE, line, f"{line}\n{shown}", figures)


def passes(got: Tensor, reference: Tensor, honest: Tensor, tolerance: Tolerance, yardstick: Yardstick) -> bool:
    """Whether `compare` passes it. What is far off is so in its first elements already."""
    if got.shape != honest.shape or got.dtype != honest.dtype:
        return False
    if not honest.dtype.is_floating_point or yardstick.lost:
        return compare("", got, reference, honest, tolerance, yardstick).passed
    first = [tensor.detach().reshape(-1)[:CHUNK] for tensor in (got, reference)]
    errors, bad_kind = _errors(first, yardstick.typical, allow_nonfinite=False)
    if bad_kind or errors.max_abs > tolerance.multiple * yardstick.unit:
        return False
    return compare("", got, reference, honest, tolerance, yardstick).passed


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Equal bit for bit, wherever they lie: a NaN is itself, and -0.0 is not 0.0."""
    return torch.equal(_bits(left), _bits(right.to(left.device)))


def fingerprint(tensor: Tensor) -> int:
    """64 bits that tensors of the same bits have in common, and hardly two others: what is left of a large one."""
    mark = 0
    for i, words in enumerate(_bits(tensor).split(CHUNK)):
        mixed = torch.arange(len(words), device=words.device).add_(i * CHUNK).mul_(_ODD).add_(words).mul_(_ODD)
        mark += int((mixed ^ (mixed >> 31)).mul_(_ODD).sum())
    return mark % (1 << 64)


def _bits(tensor: Tensor) -> Tensor:
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(tensor.itemsize, torch.uint8)
    return tensor.contiguous().view(-1).view(words)


def finite(tensor: Tensor) -> bool:
    """Whether every element is, in one pass over the tensor: the largest of a NaN and anything is a NaN."""
    if not tensor.numel() or not tensor.is_floating_point():
        return True
    return all(math.isfinite(extreme.item()) for extreme in tensor.aminmax())


def _errors(flat: list[Tensor], typical: float, *, allow_nonfinite: bool) -> tuple[_Gathered, int]:
    """An answer's errors beside a reference, and how many elements are no number where they should be, or none."""
    gathered, bad_kind = _Gathered(), 0
    for _, g, r in _pieces(*flat):
        errors, _, all_are = _of_numbers(g, r, typical)
        gathered.add(*errors)
        if not all_are:
            kinds = _same_kind(g, r) if allow_nonfinite else False
            bad_kind += int((~torch.where(torch.isfinite(r), torch.isfinite(g), kinds)).sum())
    return gathered, bad_kind


def _steps(answer: Tensor, reference: Tensor) -> _Gathered:
    """How far integers or truth values are off, and how many are."""
    gathered = _Gathered()
    for _, a, r in _pieces(answer.detach().reshape(-1), reference.detach().reshape(-1)):
        error = (a - r).double().abs_()
        relative = error / r.double().abs_().clamp_(min=1)
        gathered.add(error.max().item(), error.norm().item(), relative.max().item())
        gathered.unequal += int(error.count_nonzero())
    return gathered


def _of_numbers(answer: Tensor, reference: Tensor, typical: float) -> tuple[list[float], Tensor, bool]:
    """The figures of what is a number in both, the reference's numbers of these, and whether all are."""
    figures = _figures(answer, reference, typical)
    if all(map(math.isfinite, figures)):
        return figures, reference, True
    keep = torch.isfinite(reference) & torch.isfinite(answer)
    return _figures(answer[keep], reference[keep], typical), reference[keep], False


def _lost(answer: Tensor, exact: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Where `answer` is no number and `dtype` has one for float64's; None where that is nowhere."""
    places = torch.cat([torch.isfinite(r.to(dtype)) & ~torch.isfinite(a) for _, a, r in _pieces(answer, exact)])
    return places if places.any() else None


def _pieces(*flat: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Start index and matching pieces of flat tensors, on the last one's device.

    Integers stay some, for float64 holds them all up to 2**53 and no further; truth values become some.
    """
    device = flat[-1].device
    for start in range(0, flat[0].numel(), CHUNK):
        piece = [tensor[start : start + CHUNK].to(device=device) for tensor in flat]
        yield start, *(one if one.is_floating_point() else one.long() for one in piece)  # type: ignore[misc]


def _figures(answer: Tensor, reference: Tensor, typical: float) -> list[float]:
    """Of the errors the largest, the norm, and the largest relative one.

    A NaN or an infinity in either is one in these. Whoever asks for each element whether it is finite, and for every
    figure by itself, reads and writes three times as much.
    """
    if not reference.numel():
        return [0.0] * 3
    magnitude = reference.abs().add_(typical)
    error = answer - reference
    figures = [_largest(error), torch.linalg.vector_norm(error), _largest(error.div_(magnitude))]
    return torch.stack(figures).tolist()


def _size(reference: Tensor) -> list[float]:
    """The largest magnitude, and the norm."""
    if not reference.numel():
        return [0.0] * 2
    return torch.stack([_largest(reference), torch.linalg.vector_norm(reference)]).tolist()


def _largest(tensor: Tensor) -> Tensor:
    return torch.linalg.vector_norm(tensor, float("inf"))


def _typical(honest: Tensor, reference: Tensor, half_ulp: float) -> float:
    """The honest answer's median error: no element is asked to be right to much less than that.

    Where terms cancel, an element can be far smaller than what it is the difference of. Softmax's gradient
    y * (dy - sum) in fp32, rows of 70001: one rounding of a sum of 0.5 moves elements of 8e-12 by 4e-13, and whether
    eager's own sums were luckier is chance, for there is one to a row.

    Elements that are zero in both say nothing of it: with those of a ReLU, half of all, the median was zero, and one
    element of eight million beyond the kink, by 6e-8, refused an honest product summed in another order.
    """
    stride = -(-honest.numel() // SAMPLE) or 1
    h, r = honest[::stride].double(), reference[::stride].double().to(honest.device)
    telling = torch.isfinite(h) & torch.isfinite(r) & ((h != 0) | (r != 0))
    count = int(telling.count_nonzero())
    if not count:
        return TINY
    if count < len(h):
        h, r = h[telling], r[telling]
    # One answer of the device's for both: each is waited for.
    error, size = torch.stack([(h - r).abs().median(), r.abs().median()]).tolist()
    return max(error, half_ulp * size, TINY)


def _same_kind(got: Tensor, reference: Tensor) -> Tensor:
    """True where a non-finite reference is met: NaN by NaN, an infinity by the same infinity."""
    return (got.isnan() & reference.isnan()) | (got == reference)


def _mismatches(flat: list[Tensor], shape: torch.Size, bounds: _Bounds | _Steps) -> tuple[int, str, float]:
    """Count of the elements outside, the first of them and the worst in words, and the worst error."""
    lines: list[str] = []
    count, worst, worst_line = 0, -1.0, ""
    for start, g, r in _pieces(*flat):
        error = (g - r).double().abs()
        places = bounds.outside(g, r, error).nonzero().reshape(-1)
        if not len(places):
            continue
        count += len(places)
        lines += [_line(start + i, shape, g[i], r[i]) for i in places[: SHOWN - len(lines)].tolist()]
        errors = error[places].nan_to_num(nan=float("inf"), posinf=float("inf"))
        peak = int(errors.argmax())
        if errors[peak].item() > worst:
            i = int(places[peak])
            worst, worst_line = errors[peak].item(), _line(start + i, shape, g[i], r[i])
    shown = "\n".join([f"  worst {worst_line}", f"  first {len(lines)}:", *(f"    {line}" for line in lines)])
    return count, shown, worst


def _line(index: int, shape: torch.Size, got: Tensor, expected: Tensor) -> str:
    place = tuple(int(i) for i in torch.unravel_index(torch.tensor(index), shape)) if shape else ()
    got_is, expected_is = (f"{x.item():.9g}" if x.is_floating_point() else str(x.item()) for x in (got, expected))
    return f"at {place}: got {got_is}, expected {expected_is}"


def _over(error: float, unit: float) -> float:
    if error == 0.0:
        return 0.0
    return error / unit if unit else float("inf")
