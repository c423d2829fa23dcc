"""Several sweeps, several results, an argument that may be absent, the host's time: `bench` and the other verbs."""

import itertools
import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import typer
from made_up import DOUBLE, SCALED_SUM, honest, scaled_sum, willing

from kernelyard.bench import measure
from kernelyard.bench.plan import Request, points
from kernelyard.cli import check as check_verb
from kernelyard.cli import list_ as list_verb
from kernelyard.core.operator import Implementation
from kernelyard.core.verdict import Floor, Timing
from kernelyard.core.workload import Mode, Workload
from kernelyard.judge import timing
from kernelyard.judge.prove import prove
from kernelyard.ladder.climb import climb
from kernelyard.report import ledger

CPU = torch.device("cpu")
EVERYTHING = Request(("float32",), tuple(Mode), ("speed", "memory", "host"))


def one_gradient_short(x: torch.Tensor, weight: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    return scaled_sum(x, None if weight is None else weight.detach() + 0 * weight)


SHORT = Implementation("triton", one_gradient_short, willing)


@pytest.fixture
def swept(benched) -> Callable[..., Any]:
    def run(*candidates: Implementation, **options: Any) -> Any:
        return ledger.read(benched(operator=["scaled_sum"], backends={"scaled_sum": list(candidates)}, **options))

    return run


def test_every_sweep_is_measured_in_its_own_modes_and_metric(swept) -> None:
    frame = swept(honest(SCALED_SUM), metric=["speed", "host"])
    found = {
        (row.metric_name, row.x_name, "weight" in row.extra_benchmark_config_str, row.kernel_operation_mode)
        for row in frame.itertuples()
    }
    assert found == {
        ("speed", "N", False, "forward"),
        ("speed", "N", False, "backward"),
        ("speed", "N", False, "full"),
        ("speed", "N", True, "forward"),
        ("host", "M", False, "forward"),
    }
    assert not ledger.latest(frame).groupby(list(ledger.KEY)).size().gt(1).any()


def test_host_rows_are_microseconds_of_the_backends_and_of_the_public_call(swept) -> None:
    frame = swept(honest(SCALED_SUM), metric=["host"])
    assert set(frame["kernel_provider"]) == {"eager", "public"}
    assert set(frame["metric_unit"]) == {"us"} and set(frame["timer"]) == {"host"}
    assert (frame["y_value_50"] > 0.1).all() and (frame["y_value_50"] < 10_000).all()
    assert frame["percent_of_floor"].isna().all()


def test_a_sweep_is_chosen_by_its_x_axis(swept) -> None:
    assert set(swept(honest(SCALED_SUM), metric=["speed", "host"], x_name=["M"])["x_name"]) == {"M"}


def test_points_leave_out_what_the_request_does() -> None:
    def asked(**changes: Any) -> set[tuple[str, int]]:
        request = Request(**{**EVERYTHING.__dict__, **changes})
        return {(point.sweep.x_name, point.x) for point in points(SCALED_SUM, request, "cpu")}

    assert asked() == {("N", 1000), ("N", 5000), ("M", 1), ("M", 8)}
    assert asked(metrics=("host",)) == {("M", 1), ("M", 8)}
    assert asked(modes=(Mode.BACKWARD,)) == {("N", 1000), ("N", 5000)}
    assert asked(sizes=(8, 5000)) == {("M", 8), ("N", 5000)}
    assert not any(
        point.public for point in points(SCALED_SUM, Request(*list(EVERYTHING.__dict__.values())[:5], False), "cpu")
    )


def test_a_wrong_gradient_of_an_optional_argument_is_caught_in_bench(swept, capsys) -> None:
    with pytest.raises(typer.Exit):
        swept(honest(SCALED_SUM), SHORT, metric=["speed"], x_name=["N"])
    assert "triton: incorrect_value" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("workload", SCALED_SUM.workloads, ids=lambda w: w.label)
def test_a_proof_covers_every_output_and_the_gradients_of_what_is_given(workload: Workload) -> None:
    proof = prove(SCALED_SUM, honest(SCALED_SUM), honest(SCALED_SUM), workload, CPU)
    weight = ["grad weight"] if workload.option("weight", True) else []
    assert proof.passed
    assert [figures.output for figures in proof.errors] == ["scaled", "total", "grad x", *weight]
    alone = prove(SCALED_SUM, honest(SCALED_SUM), honest(SCALED_SUM), workload, CPU, gradients=False)
    assert [figures.output for figures in alone.errors] == ["scaled", "total"]


def test_the_ladder_climbs_two_outputs_and_names_the_wrong_one() -> None:
    limit = Floor(
        bytes=1, operations=0, bound="memory", floor_ms=0.5, copy_gbps=1.0, tflops=None, datasheet_gbps=None,
        impossible_ms=0.0001,
    )  # fmt: skip
    lone = Implementation("cuda", lambda x, weight: scaled_sum(x, weight)[0], willing)
    for mode in Mode:
        climbed = climb(
            SCALED_SUM, [honest(SCALED_SUM), SHORT, lone], honest(SCALED_SUM), Workload.of(6), mode, limit, CPU
        )
        assert [row.status for row in climbed.rows] == ["passed", "incorrect_value", "runtime_error"]
        assert "grad weight" in climbed.rows[1].message
        assert "1 outputs, expected 2: scaled, total" in climbed.rows[2].message


def test_check_and_list_take_two_outputs_and_an_absent_argument(library, monkeypatch, capsys) -> None:
    library({"scaled_sum": [honest(SCALED_SUM)]}, {})
    for verb in (check_verb, list_verb):
        monkeypatch.setattr(verb, "implementations", lambda name, only=None: [honest(SCALED_SUM)])
    monkeypatch.setattr(check_verb, "implementation", lambda name, backend: honest(SCALED_SUM))
    check_verb.check("scaled_sum", device="cpu")
    list_verb.list_(device="cpu")
    out = capsys.readouterr().out
    assert "scaled_sum: proved against float64" in out and "x weight" in out


def test_slow_calls_are_sampled_less_and_as_long_as_fast_ones(monkeypatch) -> None:
    """By what a sample of each takes, which is said here: a loaded machine makes fast ones slow."""
    order: list[str] = []
    calls = {name: partial(order.append, name) for name in ("slow", "fast")}
    seconds = {calls["slow"]: 0.02, calls["fast"]: 0.002}
    monkeypatch.setattr(timing, "_settle", lambda call, *_: seconds[call])
    taken = timing.interleaved(calls, CPU, seconds=0.2)
    assert {name: len(timed.samples_ms) for name, timed in taken.items()} == {"slow": 10, "fast": 100}
    gaps = [len(list(run)) for name, run in itertools.groupby(order[4:]) if name == "fast"]
    assert max(gaps) <= 20, "a slow one is sampled all along"


def test_the_hosts_time_is_taken_in_inference_without_waiting(monkeypatch) -> None:
    """By a clock that only the call moves: a loaded machine wakes a sleeper late."""
    seen: list[bool] = []
    # Each call appends once and takes a millisecond.
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter_ns=lambda: 1_000_000 * len(seen)))

    def call() -> None:
        seen.append(torch.is_inference_mode_enabled())

    taken = timing.host_times({"call": call}, CPU)["call"]
    assert all(seen) and taken.samples_ms == (1.0,) * (timing.HOST_ROUNDS // 2)
    assert (taken.timer, taken.cache) == ("host", "warm")


def test_a_core_of_two_speeds_is_not_the_difference_of_two_calls(monkeypatch) -> None:
    """Spells at two thirds of the speed, of any length, in half of the time."""
    rng = random.Random(7)
    now = spell_ends = 0
    slow = False

    def call(nanoseconds: int) -> None:
        nonlocal now, spell_ends, slow
        if now >= spell_ends:
            slow, spell_ends = rng.random() < 0.5, now + rng.randrange(200_000, 8_000_000)
        now += nanoseconds * 3 // 2 if slow else nanoseconds

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter_ns=lambda: now))
    for _ in range(20):
        taken = timing.host_times({"public": partial(call, 7600), "eager": partial(call, 7800)}, CPU)
        assert (taken["public"].p50_ms, taken["eager"].p50_ms) == pytest.approx((0.0076, 0.0078), rel=0.005)


def test_of_calls_that_are_slow_by_themselves_fewer_are_timed(monkeypatch) -> None:
    now = 0

    def call() -> None:
        nonlocal now
        now += 400_000_000

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter_ns=lambda: now))
    taken = timing.host_times({"call": call}, CPU)["call"]
    assert len(taken.samples_ms) == (timing.LEAST_HOST_ROUNDS + 1) // 2


def test_the_public_row_is_timed_without_what_sorts_its_arguments(swept, monkeypatch) -> None:
    timed: dict[str, Any] = {}

    def record(calls: dict[str, Any], device: torch.device) -> dict[str, Timing]:
        timed.update(calls)
        return {name: Timing(samples_ms=(1.0,), timer="host", cache="warm") for name in calls}

    monkeypatch.setattr(measure, "host_times", record)
    frame = swept(honest(SCALED_SUM), metric=["host"])
    assert timed["public"].func is SCALED_SUM.reference
    assert set(frame["y_value_50"]) == {1000.0}
    assert DOUBLE.public_arguments(1, 2) == ((1, 2), {})


def test_what_raises_in_inference_alone_costs_the_others_nothing(swept, capsys) -> None:
    def shy(x: torch.Tensor, weight: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        if torch.is_inference_mode_enabled():
            raise RuntimeError("not in inference")
        return scaled_sum(x, weight)

    with pytest.raises(typer.Exit):
        swept(honest(SCALED_SUM), Implementation("triton", shy, willing), metric=["host"])
    assert "triton: forward on 1 float32: RuntimeError: not in inference; no row" in " ".join(
        capsys.readouterr().err.split()
    )
