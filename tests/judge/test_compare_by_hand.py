"""The ruler by hand: its figures in numbers that fp32 holds exactly, and every bound just met and just passed."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from kernelyard.core.operator import Tolerance
from kernelyard.judge.compare import compare, finite, same_bits

TOLERANCE = Tolerance(multiple=8.0, fp32_ulps=64.0)
EPS = 2.0**-23


def _held(reference: Sequence[float], honest: Sequence[float], ours: Sequence[float], tolerance: Tolerance = TOLERANCE):
    """`honest` and `ours` are errors; fp32 holds what they make of the reference."""
    exact = torch.tensor(reference, dtype=torch.float64)
    own, got = ((exact + torch.tensor(errors, dtype=torch.float64)).float() for errors in (honest, ours))
    assert torch.equal(got.double() - exact, torch.tensor(ours, dtype=torch.float64)), "rounded"
    return compare("y", got, exact, own, tolerance)


def test_the_figures() -> None:
    u = 2.0**-10
    figures = _held([1.0, 2.0, 4.0, 8.0], [u, -u, 2 * u, 0.0], [2 * u, 0.0, 4 * u, -8 * u]).figures
    assert figures is not None
    assert (figures.max_abs, figures.honest_max_abs) == (8 * u, 2 * u)
    assert figures.rms == pytest.approx(((4 + 16 + 64) / 4) ** 0.5 * u)
    assert figures.honest_rms == pytest.approx(((1 + 1 + 4) / 4) ** 0.5 * u)
    # Over the element's size and the honest median error.
    assert figures.max_rel == pytest.approx(2 * u / (1 + u)) and figures.honest_max_rel == pytest.approx(u / (1 + u))
    assert figures.over_honest == pytest.approx(4.0) and figures.allowed == 8.0
    assert (figures.mismatched, figures.elements) == (0, 4)


def test_what_is_exact_or_empty_is_off_by_nothing() -> None:
    figures = _held([1.0, 2.0], [EPS, 0.0], [0.0, 0.0]).figures
    assert figures is not None and (figures.max_abs, figures.rms, figures.max_rel, figures.over_honest) == (0, 0, 0, 0)
    figures = _held([], [], []).figures
    assert figures is not None and (figures.max_abs, figures.honest_max_rel, figures.elements) == (0, 0, 0)


def test_how_far_is_told_by_the_mean_of_squares_too() -> None:
    u = 2.0**-10
    figures = _held([1.0] * 4, [3 * u, u, u, u], [3 * u, -3 * u, 3 * u, 3 * u]).figures
    assert figures is not None and figures.over_honest == pytest.approx(3.0 / (12 / 4) ** 0.5)


def test_an_answer_whose_square_float64_does_not_hold_is_only_wrong() -> None:
    exact = torch.ones(1, dtype=torch.float64)
    held = compare("y", 1e200 * exact, exact, exact, TOLERANCE)
    assert not held.passed and held.figures is not None and held.figures.max_abs == 1e200


@pytest.mark.parametrize(("ulps", "passed"), [(4, True), (5, False)])
def test_a_lucky_honest_answer_is_taken_for_half_an_ulp_of_the_largest(ulps: int, passed: bool) -> None:
    """Eight of these are four of one's next number."""
    assert _held([1.0] * 4, [0.0] * 4, [0.0, 0.0, 0.0, ulps * EPS]).passed == passed


@pytest.mark.parametrize(("steps", "passed"), [(8, True), (9, False)])
def test_an_element_that_cancelled_may_be_off_by_eight_times_half_an_ulp_of_the_usual_one(
    steps: int, passed: bool
) -> None:
    """Of 0.25, beside a largest of 1 that allows four times as much; in steps of half an ulp of 0.25."""
    reference = [0.25] * 998 + [1.0, 2.0**-60]
    ours = [0.0] * 999 + [steps * EPS / 8]
    exact = torch.tensor(reference, dtype=torch.float64)
    got = (exact + torch.tensor(ours, dtype=torch.float64)).float()
    assert compare("y", got, exact, exact.float(), TOLERANCE).passed == passed


@pytest.mark.parametrize(
    ("ulps", "steps", "passed"), [(64.0, 72, True), (64.0, 73, False), (0.0, 8, True), (0.0, 9, False)]
)
def test_fp32_arithmetic_may_lose_some_ulps_of_an_element(ulps: float, steps: int, passed: bool) -> None:
    """Of 0.25 beside 1024, in steps of its ulp, EPS / 4: 64 by the arithmetic, eight half ulps of its own, eight of
    what is usual."""
    held = _held([0.25] * 1000 + [1024.0], [0.0] * 1001, [steps * EPS / 4] + [0.0] * 1000, Tolerance(8.0, ulps))
    assert held.passed == passed


@pytest.mark.parametrize(("errors", "mismatched"), [([17] * 64, 0), ([19] * 64, 64), ([26, 0] * 32, 32)])
def test_elements_that_are_each_within_may_all_of_them_be_too_far(errors: list[int], mismatched: int) -> None:
    """One honest element is off by 16 and 63 by 1: 128 are allowed to one, and to the mean of squares 17.87."""
    u = 2.0**-20
    held = _held([1.0] * 64, [16 * u] + [u] * 63, [u * error for error in errors])
    assert held.passed == (not mismatched)
    assert held.figures is not None and held.figures.mismatched == mismatched
    share = {0: "", 32: "32 of 64 elements differ (50 %)", 64: "64 of 64 elements differ (100 %)"}
    assert share[mismatched] in held.message


def test_the_figures_of_integers() -> None:
    reference = torch.tensor([0, 10, 20])
    honest, got = (torch.tensor(values, dtype=torch.int32) for values in ([1, 10, 20], [-3, 15, 20]))
    figures = compare("y", got, reference, honest, TOLERANCE).figures
    assert figures is not None
    assert (figures.max_abs, figures.honest_max_abs) == (5.0, 1.0)
    assert figures.rms == pytest.approx((34 / 3) ** 0.5) and figures.honest_rms == pytest.approx((1 / 3) ** 0.5)
    # Over the element's size, and never over less than one.
    assert (figures.max_rel, figures.honest_max_rel, figures.over_honest) == (3.0, 1.0, 2.0)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.bfloat16, torch.float16, torch.float32, torch.float64]
)
def test_bits_are_the_same_or_not(dtype: torch.dtype) -> None:
    ones = torch.ones(3, dtype=dtype)
    assert same_bits(ones, ones.clone())
    for place in range(3):
        other = ones.clone()
        other.view(torch.uint8)[place * dtype.itemsize] ^= 1
        assert not same_bits(ones, other)
    if dtype.is_floating_point:
        assert not same_bits(0 * ones, -0.0 * ones) and same_bits(ones * float("nan"), ones * float("nan"))


def test_bits_are_told_wherever_they_lie() -> None:
    square = torch.arange(9.0).view(3, 3)
    assert same_bits(square.T, square.T.contiguous()) and not same_bits(square.T, square)


def test_the_worst_is_named_also_where_it_is_the_first_and_a_nan_is_worse_than_any_number() -> None:
    exact = torch.zeros(4, dtype=torch.float64) + 1
    honest: Tensor = exact.float()
    told = compare("y", torch.tensor([3.0, 1.0, 2.0, 1.0]), exact, honest, TOLERANCE)
    assert "worst by 2" in told.message and "worst at (0,)" in told.report
    told = compare("y", torch.tensor([3.0, 1.0, float("nan"), 1.0]), exact, honest, TOLERANCE)
    assert "worst by inf" in told.message and "worst at (2,)" in told.report


def test_what_is_finite() -> None:
    assert finite(torch.empty(0)) and finite(torch.tensor([1, 2])) and finite(torch.tensor([1.0, -2.0]))
    for value in (float("nan"), float("inf"), float("-inf")):
        for place in range(3):
            one = torch.ones(3)
            one[place] = value
            assert not finite(one)
