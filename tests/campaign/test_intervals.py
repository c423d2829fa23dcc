"""Intervals and chances: tabled values, to the digits of the tables."""

import math

import pytest

from kernelyard.campaign.intervals import any_right, beta, holm, mean, share, sign_p, student_p


@pytest.mark.parametrize(
    ("count", "of", "low", "high"), [(8, 20, 0.1912, 0.6395), (0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0)]
)
def test_a_share_has_the_exact_interval(count: int, of: int, low: float, high: float) -> None:
    found = share(count, of)
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_the_interval_covers_what_it_should_and_a_count_of_parts_lies_between_whole_ones() -> None:
    for p in (0.05, 0.3, 0.5):
        covered = sum(
            math.comb(30, count) * p**count * (1 - p) ** (30 - count)
            for count in range(31)
            if share(count, 30).low <= p <= share(count, 30).high
        )
        assert 0.95 <= covered < 0.995
    assert share(3, 10).low < share(3.5, 10).low < share(4, 10).low
    assert share(0, 0) is None


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.5), (0.2, 0.9), (0.5, 1.0)])
def test_a_mean_of_shares_of_samples_is_covered_as_well(low: float, high: float) -> None:
    """Each problem's share is `low` or `high`: what such a sum is off by is no more than a coin's."""
    for chance in (0.05, 0.3, 0.6):
        mean_share = low + chance * (high - low)
        covered = sum(
            math.comb(20, count) * chance**count * (1 - chance) ** (20 - count)
            for count in range(21)
            if (found := share(20 * low + count * (high - low), 20)).low <= mean_share <= found.high
        )
        assert covered >= 0.95


def test_the_beta_function_has_its_closed_forms() -> None:
    assert beta(0.5, 0.5, 0.3) == pytest.approx(2 / math.pi * math.asin(0.3**0.5), rel=1e-12)
    assert beta(2, 3, 0.4) == pytest.approx(0.5248, rel=1e-12)
    assert beta(200, 800, 0.2) == pytest.approx(0.50631, rel=1e-5)


def test_chances_are_those_of_the_tables() -> None:
    assert sign_p(1, 9) == pytest.approx(22 / 1024)
    assert sign_p(0, 0) == 1.0
    assert student_p([0.1, 0.2, 0.3, -0.05]) == pytest.approx(0.16273, abs=1e-5)
    assert student_p([0.0, 0.0]) == 1.0
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_a_mean_is_geometric_and_of_one_has_no_interval() -> None:
    assert mean([4.0, 0.25]).value == pytest.approx(1.0)
    assert mean([2.0]).low is None
    assert mean([]) is None
    assert mean([1e200] * 3).value == pytest.approx(1e200), "a product would overflow"


def test_an_interval_that_says_nothing_is_left_out_and_none_is_beyond_what_can_be() -> None:
    """Of 0.01x and 9x it went from 5e-20 to 2e18, across the page."""
    wild = mean([0.01, 9.0])
    assert wild.value == pytest.approx(0.3) and (wild.low, wild.high) == (None, None)
    near = mean([1.0, 1.1])
    assert near.low < 1 < 1.1 < near.high < 2
    near_the_floor = [0.5, 0.9, 0.95]
    assert mean(near_the_floor, most=1.0).high == 1.0 < mean(near_the_floor).high


def test_pass_at_k_counts_the_draws() -> None:
    assert any_right(5, 2, 2) == pytest.approx(1 - math.comb(3, 2) / math.comb(5, 2))
    assert any_right(5, 0, 3) == 0.0
    assert any_right(5, 3, 3) == 1.0
