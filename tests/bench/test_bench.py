"""`bench` on an operator made up here: proved before it is timed, whole rows, and nothing for a wrong backend."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
import typer
from made_up import DOUBLE, double, honest, willing

from kernelyard.bench import measure
from kernelyard.bench.plan import Request, points
from kernelyard.bench.prove import Proofs
from kernelyard.cli import bench as cli
from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Implementation
from kernelyard.core.workload import Mode
from kernelyard.report import ledger


def wrong_in_long_rows(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.numel() < 2000 else x * 2.5


HONEST = honest(DOUBLE)
WRONG = Implementation("triton", wrong_in_long_rows, willing)
REFUSING = Implementation("cuda", double, lambda x: "needs a GPU")


def test_every_point_and_mode_gets_a_row_with_its_floor(benched) -> None:
    frame = ledger.read(benched(HONEST, metric=["speed"]))
    rows = set(zip(frame["kernel_operation_mode"], frame["x_value"], strict=True))
    assert rows == {(mode.value, x) for mode in Mode for x in (1000, 5000)}
    assert (frame["kernel_name"] == "double").all()
    assert (frame["extra_benchmark_config_str"] == ledger.config_text("float32")).all()
    assert (frame["y_value_20"] <= frame["y_value_50"]).all()
    assert (frame["y_value_50"] <= frame["y_value_80"]).all()
    assert frame["floor_ms"].to_numpy() == pytest.approx((frame["bytes"] / frame["copy_gbps"] / 1e6).to_numpy())
    assert frame["percent_of_floor"].to_numpy() == pytest.approx(
        (100 * frame["floor_ms"] / frame["y_value_50"]).to_numpy()
    )
    assert set(frame["cache"]) == {"cold"}


def test_a_backend_wrong_at_one_size_gets_no_row_at_all(benched, capsys) -> None:
    with pytest.raises(typer.Exit) as ended:
        benched(HONEST, WRONG, mode=["forward"])
    assert ended.value.exit_code == 1
    assert set(ledger.read(benched.path)["kernel_provider"]) == {"eager"}
    assert "triton: incorrect_value on 5000 float32" in " ".join(capsys.readouterr().err.split())


def test_a_backend_that_refuses_is_named_and_no_failure(benched, capsys) -> None:
    frame = ledger.read(benched(HONEST, REFUSING, mode=["forward"], x=[1000]))
    assert set(frame["kernel_provider"]) == {"eager"}
    assert "cuda: refused on 1000 float32: needs a GPU" in " ".join(capsys.readouterr().err.split())


def test_nothing_proved_is_nothing_written(benched) -> None:
    with pytest.raises(UsageError, match="nothing was measured: no row added to"):
        benched(REFUSING)
    assert not benched.path.exists() and not benched.path.parent.exists()


def test_a_rerun_adds_and_overwrite_replaces(benched) -> None:
    some = {"mode": ["forward"], "metric": ["speed"]}
    assert len(ledger.read(benched(HONEST, **some))) == 2
    assert len(ledger.read(benched(HONEST, **some))) == 4
    assert len(ledger.read(benched(HONEST, **some, overwrite=True))) == 2


def test_what_was_measured_before_an_interruption_is_kept(benched, monkeypatch) -> None:
    real, calls = measure.interleaved, []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(measure, "interleaved", interrupted)
    with pytest.raises(KeyboardInterrupt):
        benched(HONEST, mode=["forward"], metric=["speed"])
    assert list(ledger.read(benched.path)["x_value"]) == [1000]


def test_a_time_under_the_possible_is_no_row_and_a_failure(benched, monkeypatch, capsys) -> None:
    real = measure.measure_ceilings

    def slow_device(*arguments: Any, **options: Any) -> Any:
        return real(*arguments, **options).model_copy(update={"copy_gbps": 1e-6, "cached_gbps": 1e-6})

    monkeypatch.setattr(measure, "measure_ceilings", slow_device)
    with pytest.raises(typer.Exit):
        benched(HONEST, mode=["forward"], metric=["speed"])
    assert not benched.path.exists()
    assert "is under the possible" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": ["fp23"]}, "unknown dtype 'fp23': did you mean 'fp32'"),
        ({"mode": ["forwards"]}, "unknown mode 'forwards': did you mean 'forward'"),
        ({"metric": ["sped"]}, "unknown metric 'sped': did you mean 'speed'"),
        ({"x_name": ["M"]}, "unknown x axis of double 'M'"),
        ({"against": ["ligr", "cuda"]}, "unknown name after --against 'ligr'"),
        ({"operator": []}, "expected operators or --all; the operators are double"),
        ({"all_": True}, "expected either operators or --all, not both"),
        ({"operator": ["doubel"]}, "unknown operator 'doubel': did you mean 'double'"),
        ({"x": [7]}, "--x 7: double has on cpu sweeps over N of 1000, 5000"),
    ],
)
def test_what_does_not_exist_is_a_usage_error_and_no_row(benched, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        benched(HONEST, **options)
    assert not benched.path.exists()


def test_a_foreign_csv_is_refused_before_anything_is_measured(benched, monkeypatch) -> None:
    benched.path.parent.mkdir()
    benched.path.write_text("a,b\n1,2\n")
    monkeypatch.setattr(cli, "Proofs", None)
    with pytest.raises(UsageError, match="not a ledger"):
        benched(HONEST)
    assert benched.path.read_text() == "a,b\n1,2\n"


def test_a_point_for_which_memory_is_short_is_proved_again_when_the_device_is_free(capsys) -> None:
    others_hold_memory = [True]

    def hungry(x: torch.Tensor) -> torch.Tensor:
        if others_hold_memory[0]:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return x * 2

    point = points(DOUBLE, Request(("float32",), (Mode.FORWARD,), ("speed",)), "cpu")[0]
    candidate = Implementation("triton", hungry, willing)
    proofs = Proofs(DOUBLE, HONEST, torch.device("cpu"), print)
    assert not proofs.add(point, [candidate], alone=False)
    assert capsys.readouterr().out == ""
    assert not proofs.timeable(point, Mode.FORWARD, [candidate])
    others_hold_memory[0] = False
    assert proofs.add(point, [candidate], alone=True)
    assert proofs.timeable(point, Mode.FORWARD, [candidate])
    others_hold_memory[0] = True
    alone = Proofs(DOUBLE, HONEST, torch.device("cpu"), print)
    assert alone.add(point, [candidate], alone=True)
    assert "triton: runtime_error" in capsys.readouterr().out


class OverwritesWhatItKeeps(torch.autograd.Function):
    """2x, whose backward scales in place what forward left behind: right once."""

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        ctx.left = torch.full_like(x, 2.0)
        return x * 2

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:
        return ctx.left.mul_(grad)


@pytest.mark.parametrize("declared", [False, True])
def test_a_backward_that_is_right_once_is_not_timed_over_a_kept_graph(benched, capsys, declared: bool) -> None:
    candidate = Implementation("triton", OverwritesWhatItKeeps.apply, willing, walks_once=declared)
    with nullcontext() if declared else pytest.raises(typer.Exit):
        benched(HONEST, candidate, metric=["speed"])
    timed = ledger.read(benched.path).query("kernel_provider == 'triton'")["kernel_operation_mode"]
    assert set(timed) == ({"forward", "full"} if declared else set())
    assert ("triton: nondeterministic" in capsys.readouterr().err) is not declared


class OverwritesWhatItIsGiven(torch.autograd.Function):
    """2x, written over x; backward over the gradient that it is given."""

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        return x.detach().mul_(2).view(x.shape).clone()

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:
        return grad.mul_(2)


@pytest.mark.parametrize("declared", [False, True])
def test_who_writes_over_its_arguments_has_copies_of_its_own(benched, capsys, declared: bool) -> None:
    """And so has a backward to be timed: Liger's rope and gated products had none, for others still read them."""
    candidate = Implementation(
        "triton", OverwritesWhatItIsGiven.apply, willing, overwrites=declared, walks_once=declared
    )
    with nullcontext() if declared else pytest.raises(typer.Exit):
        benched(HONEST, candidate, metric=["speed"])
    timed = ledger.read(benched.path).query("kernel_provider == 'triton'")["kernel_operation_mode"]
    assert set(timed) == ({"forward", "backward", "full"} if declared else set())
    assert ("triton: input_mutated" in capsys.readouterr().err) is not declared
    assert set(ledger.read(benched.path).query("kernel_provider == 'eager'")["kernel_operation_mode"])


def test_one_call_measures_and_draws(benched, capsys) -> None:
    path = benched(HONEST, metric=["speed"], mode=["forward"], x=[1000], plot=True)
    drawn = path.parent / "double.png"
    assert drawn.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.splitlines()[-1] == str(drawn)
