"""The ruler: what passes beside float64, what does not, and what is said about it."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kernelyard.core.operator import Tolerance
from kernelyard.core.verdict import Status
from kernelyard.judge import compare as module
from kernelyard.judge.compare import Yardstick, compare, fingerprint, passes

TOLERANCE = Tolerance()


def _softmax(rows: int = 16, columns: int = 1000) -> tuple[torch.Tensor, torch.Tensor]:
    x = 4 * torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))
    return torch.softmax(x.double(), -1), torch.softmax(x, -1)


def test_the_honest_answer_is_one_times_itself() -> None:
    reference, honest = _softmax()
    held = compare("output", honest, reference, honest, TOLERANCE)
    assert held.passed and held.figures is not None
    assert held.figures.over_honest == pytest.approx(1.0)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda y: torch.zeros_like(y),
        lambda y: y * (1 + 1e-4),
        lambda y: y.half().float(),
        lambda y: y.roll(1, 0),
        lambda y: y.clone().index_fill_(1, torch.tensor([7]), float("nan")),
        lambda y: y.clone().index_fill_(1, torch.tensor([7]), float("inf")),
        lambda y: torch.where(y < 1e-6, 0.0, y),
    ],
    ids=["zeros", "scaled", "fp16", "rolled", "nan", "inf", "small elements dropped"],
)
def test_a_wrong_answer_fails(spoil: object) -> None:
    reference, honest = _softmax()
    wrong = spoil(honest)  # type: ignore[operator]
    held = compare("output", wrong, reference, honest, TOLERANCE)
    assert held.status is Status.INCORRECT_VALUE
    assert held.figures is not None and held.figures.mismatched > 0


def test_the_report_counts_names_the_worst_and_shows_five() -> None:
    reference, honest = _softmax()
    wrong = honest.clone()
    wrong[3, 10:17] += 0.25
    wrong[5, 0] += 0.5
    held = compare("grad x", wrong, reference, honest, TOLERANCE)
    assert held.message.startswith("grad x: 8 of 16000 elements differ")
    lines = held.report.splitlines()
    assert "at (5, 0)" in lines[1]
    assert [line.split(":")[0].strip() for line in lines[3:]] == [f"at (3, {i})" for i in range(10, 15)]
    assert f"got {wrong[3, 10].item():.9g}, expected {reference[3, 10].item():.9g}" in lines[3]


def test_noise_of_the_honest_size_condemns_no_small_element() -> None:
    """A cancelled element of 1e-12 among elements of 1e-5: the honest error is 1e-13 everywhere, and so is ours."""
    generator = torch.Generator().manual_seed(0)
    reference = 1e-5 * (1 + torch.rand(10_000, generator=generator, dtype=torch.float64))
    reference[77] = 1e-12
    honest = (reference + 2e-13 * torch.randn(10_000, generator=generator, dtype=torch.float64)).float()
    honest[77] = reference[77].float()
    ours = honest.clone()
    ours[77] += 4e-13
    assert compare("grad x", ours, reference, honest, TOLERANCE).passed
    ours[77] += 4e-11
    held = compare("grad x", ours, reference, honest, TOLERANCE)
    assert held.figures is not None and held.figures.mismatched == 1


def test_the_zeros_of_a_relu_ask_for_no_more_than_the_rest() -> None:
    """Another order of summation is beyond the kink in one element; an error of the answers' size is no noise."""
    generator = torch.Generator().manual_seed(0)
    before = torch.randn(10_000, generator=generator, dtype=torch.float64) - 0.5
    before[77] = -1e-9
    honest = (before + 1e-7 * torch.randn(10_000, generator=generator, dtype=torch.float64)).float().relu()
    honest[77] = 0.0
    assert (before < 0).sum() > 5_000, "the median element is a zero"
    ours = honest.clone()
    ours[77] = 6e-8
    assert compare("output", ours, before.relu(), honest, TOLERANCE).passed
    ours[77] = 1e-4
    assert not compare("output", ours, before.relu(), honest, TOLERANCE).passed


def test_chunks_agree_with_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    reference, honest = _softmax()
    wrong = honest.clone()
    wrong[[1, 8, 15], [0, 500, 999]] += 0.1
    whole = compare("output", wrong, reference, honest, TOLERANCE)
    monkeypatch.setattr(module, "CHUNK", 777)
    assert compare("output", wrong, reference, honest, TOLERANCE).report == whole.report
    assert whole.figures is not None and whole.figures.mismatched == 3


SPOILT = {
    "nothing": lambda y: y.clone(),
    "honest in another order": lambda y: y * (1 + 2**-23),
    "zeros": torch.zeros_like,
    "the last element": lambda y: y.index_fill(0, torch.tensor([15]), 0.5),
    "a NaN": lambda y: y.index_fill(0, torch.tensor([3]), float("nan")),
    "an infinity at the end": lambda y: y.index_fill(0, torch.tensor([15]), float("inf")),
    "another shape": lambda y: y[1:],
    "another dtype": lambda y: y.double(),
}


@pytest.mark.parametrize("chunk", [777, 1 << 26])
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_whether_it_passes_is_told_as_the_whole_comparison_tells_it(
    spoil: Callable[[Tensor], Tensor], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    reference, honest = _softmax()
    got = spoil(honest)
    told = passes(got, reference, honest, TOLERANCE, Yardstick.of(honest, reference))
    assert told == compare("", got, reference, honest, TOLERANCE).passed


def test_an_answer_of_the_honest_bits_has_its_figures_without_a_look_at_float64() -> None:
    reference, honest = _softmax()
    known = Yardstick.of(honest, reference)
    looked = compare("y", honest, reference, honest, TOLERANCE, replace(known, bitwise=False))
    assert looked == compare("y", honest, torch.zeros_like(reference), honest, TOLERANCE, known)
    ours = honest.clone()
    ours[0, 0] += 1e-3
    assert not compare("y", ours, reference, honest, TOLERANCE, known).passed
    # One that stands in for the honest answer says nothing of the honest answer's own errors.
    assert not Yardstick.of(honest, reference, ruler=reference + 1e-7).bitwise
    honest[3, 3] = float("nan")
    assert not Yardstick.of(honest, reference).bitwise
    assert not compare("y", honest, reference, honest, TOLERANCE).passed


def test_shape_and_dtype_come_first() -> None:
    reference, honest = _softmax()
    assert compare("y", honest[1:], reference, honest, TOLERANCE).status is Status.INCORRECT_SHAPE
    assert compare("y", honest.double(), reference, honest, TOLERANCE).status is Status.INCORRECT_DTYPE


def test_a_non_finite_reference_is_met_exactly_or_not_at_all() -> None:
    reference = torch.tensor([1.0, float("inf"), float("nan")], dtype=torch.float64)
    honest = reference.float()
    assert compare("y", honest, reference, honest, TOLERANCE, allow_nonfinite=True).passed
    assert not compare("y", honest, reference, honest, TOLERANCE).passed
    other = torch.tensor([1.0, float("-inf"), float("nan")])
    assert not compare("y", other, reference, honest, TOLERANCE, allow_nonfinite=True).passed


HALF = 2.0**-11  # half an ulp of one in fp16


@pytest.mark.parametrize("lost", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize(
    ("answer", "passed"),
    [(10.765625, True), (10.7578125, True), (10.80, True), (10.81, False), (0.0, False), (float("inf"), False)],
)
def test_where_the_honest_answer_is_no_number_float64s_is_and_rounding_is_the_ruler(
    answer: float, passed: bool, lost: float
) -> None:
    """A loss whose sums overflow in fp16 and that does not: eight half ulps of 10.76 are 0.042."""
    reference = torch.tensor(10.7635434, dtype=torch.float64)
    honest, got = torch.tensor(lost).half(), torch.tensor(answer).half()
    known = Yardstick.of(honest, reference)
    for allow_nonfinite in (True, False):
        held = compare("loss", got, reference, honest, TOLERANCE, known, allow_nonfinite=allow_nonfinite)
        assert held.passed == passed == passes(got, reference, honest, TOLERANCE, known)
    assert held.figures is not None and (held.figures.mismatched, held.figures.elements) == (int(not passed), 1)
    if passed:
        assert held.figures.max_abs == pytest.approx(abs(got.double() - reference).item())
        assert 0 < held.figures.over_honest <= TOLERANCE.multiple
    assert not compare("loss", honest, reference, honest, TOLERANCE, allow_nonfinite=True).passed


def _one_lost(size: float) -> tuple[Tensor, Tensor]:
    """63 ones, at one of which the honest answer is off by an ulp, and an element of `size`, where it is infinite."""
    reference = torch.ones(8, 8, dtype=torch.float64)
    reference[2, 5] = size
    honest = reference.half()
    honest[7, 7] += 2 * HALF
    honest[2, 5] = float("inf")
    return reference, honest


@pytest.mark.parametrize("chunk", [7, 1 << 26])
@pytest.mark.parametrize("size", [60_001.0, 1.0, 1e-4, 3e-7, 0.0, 65_510.0])
def test_a_lost_element_is_held_by_rounding_and_loosens_no_other(
    size: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    reference, honest = _one_lost(size)
    known = Yardstick.of(honest, reference)

    def told(places: tuple[int, int] | slice, by: float) -> str:
        got = reference.half()
        got[places] += by
        held = compare("y", got, reference, honest, TOLERANCE, known)
        assert held.passed == passes(got, reference, honest, TOLERANCE, known)
        return held.report

    assert not told((2, 5), 0.0), "correctly rounded"
    # Of one, eight ulps are allowed; to all, by the mean of squares, eight halves: 40 of 64 may be off by 10, not 12.
    assert not told((0, 0), 16 * HALF) and "at (0, 0)" in told((0, 0), 18 * HALF)
    assert not told(slice(3, 8), 10 * HALF) and "40 of 64 elements differ" in told(slice(3, 8), 12 * HALF)
    if size == 1.0:
        assert not told((2, 5), 16 * HALF) and "at (2, 5)" in told((2, 5), 18 * HALF), "no farther than another"
    wrong = max(0.01 * size, 0.1)
    assert "at (2, 5)" in told((2, 5), wrong) and "at (2, 5)" in told((2, 5), -wrong)
    assert "at (2, 5)" in told((2, 5), float("inf")) and "at (2, 5)" in told((2, 5), float("nan"))


def test_an_empty_output_passes() -> None:
    empty = torch.empty(0, 5)
    assert compare("y", empty, empty.double(), empty, TOLERANCE).passed


def _integers(*changes: tuple[int, int], dtype: torch.dtype = torch.int32) -> Tensor:
    """A thousand, of which so many are changed by so much."""
    made = torch.full((1000,), 1000, dtype=dtype)
    start = 0
    for many, by in changes:
        made[start : start + many] += by
        start += many
    return made


@pytest.mark.parametrize(
    ("honest", "ours", "passed"),
    [
        ([], [], True),
        ([], [(1, 1)], False),
        ([(10, 1)], [(80, -1)], True),
        ([(10, 1)], [(81, 1)], False),
        ([(10, 1)], [(1, 2)], False),
        # Whose errors are several steps has them larger elsewhere.
        ([(10, 3)], [(1, 17), (79, 2)], True),
        ([(10, 3)], [(1, 18)], False),
    ],
)
def test_of_integers_the_unequal_are_counted(
    honest: list[tuple[int, int]], ours: list[tuple[int, int]], passed: bool
) -> None:
    reference = _integers(dtype=torch.int64)
    own, got = _integers(*honest), _integers(*ours).flip(0)
    held = compare("output", got, reference, own, TOLERANCE)
    assert held.passed == passed == passes(got, reference, own, TOLERANCE, Yardstick.of(own, reference))
    assert held.figures is not None and (held.figures.mismatched == 0) == passed
    if honest:
        assert held.figures.over_honest == sum(many for many, _ in ours) / 10


def test_of_indices_only_the_count_tells() -> None:
    reference = _integers(dtype=torch.int64)
    honest, got = _integers((10, 1), dtype=torch.int64), _integers((80, 900), dtype=torch.int64)
    assert compare("output", got, reference, honest, TOLERANCE).passed
    assert not compare("output", _integers((81, 1), dtype=torch.int64), reference, honest, TOLERANCE).passed


def test_of_truth_values_eight_times_as_many_may_be_on_the_other_side() -> None:
    reference = torch.zeros(100, dtype=torch.int64)
    none = reference.bool()
    honest, sixteen, more = (none.index_fill(0, torch.arange(n), True) for n in (2, 16, 17))
    assert compare("output", sixteen.flip(0), reference, honest, TOLERANCE).passed
    held = compare("output", more.flip(0), reference, honest, TOLERANCE)
    assert held.message.startswith("output: 17 of 100 elements differ")


def test_large_integers_are_compared_as_integers() -> None:
    """At 2**60 float64 holds every 256th."""
    honest = torch.full((10,), 2**60)
    held = compare("output", honest + 60, honest, honest, TOLERANCE)
    assert held.figures is not None and held.figures.max_abs == 60.0
    assert f"got {2**60 + 60}, expected {2**60}" in held.report


def test_integers_in_chunks_are_as_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    reference, honest, got = _integers(dtype=torch.int64), _integers((10, 1)), _integers((300, -2))
    whole = compare("output", got, reference, honest, TOLERANCE)
    monkeypatch.setattr(module, "CHUNK", 77)
    assert compare("output", got, reference, honest, TOLERANCE) == whole


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.bool], ids=str)
def test_a_fingerprint_is_that_of_the_bits_and_their_places(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 100)
    x = torch.randn(30, 11).gt(0).to(dtype) if dtype is torch.bool else torch.randn(30, 11).to(dtype)
    mark = fingerprint(x)
    assert mark == fingerprint(x.clone()) == fingerprint(x.t().contiguous().t())
    other = x.clone()
    other[29, 3] = ~other[29, 3] if dtype is torch.bool else -other[29, 3]
    assert fingerprint(other) != mark
    swapped = x.clone()
    swapped[[0, 20]] = x[[20, 0]]  # lies in another piece
    assert fingerprint(swapped) != mark
