"""`bench --against`: peers beside ours, proved alike, never in the way, and what is said of the comparison."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import typer
from made_up import DOUBLE, SCALED_SUM, double, honest, willing

from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Implementation
from kernelyard.report import ledger
from kernelyard.suites.library import PeerAbsent

HONEST = honest(DOUBLE)
OURS = Implementation("cuda", double, willing)
PEER = Implementation("liger", double, willing, note="also computes x")
ABSENT = PeerAbsent("quack is not installed here: pip install quack-kernels (ImportError: no)")
SPEED: dict[str, Any] = {"mode": ["forward"], "metric": ["speed"]}


def said(capsys) -> str:
    captured = capsys.readouterr()
    return " ".join(captured.err.split()) + " " + " ".join(captured.out.split())


def providers(path) -> set[str]:
    return set(ledger.read(path)["kernel_provider"])


def test_peers_are_rows_beside_all_backends(benched, capsys) -> None:
    path = benched(HONEST, OURS, against=["liger", "quack"], peers={"liger": PEER, "quack": ABSENT}, **SPEED)
    assert providers(path) == {"eager", "cuda", "liger"}
    text = said(capsys)
    assert "quack is not installed here: pip install quack-kernels" in text
    assert "double, liger: also computes x" in text
    assert "slower than" in text or "nowhere more than 2 %" in text


def test_without_against_no_peer_is_loaded(benched, capsys) -> None:
    path = benched(HONEST, OURS, peers={"liger": RuntimeError("loaded")}, **SPEED)
    assert providers(path) == {"eager", "cuda"}
    text = said(capsys)
    assert "slower than" not in text and "nowhere" not in text


def test_backends_and_peers_can_be_named_together(benched) -> None:
    compiled = Implementation("compile", double, willing)
    options = {"peers": {"liger": PEER}, **SPEED}
    assert providers(benched(HONEST, compiled, OURS, backend=["cuda"], against=["liger", "compile"], **options)) == {
        "cuda",
        "compile",
        "liger",
    }


def test_a_wrong_peer_has_no_row_and_is_no_verdict_on_us(benched, capsys) -> None:
    wrong = replace(PEER, call=lambda x: x * 2.5)
    assert providers(benched(HONEST, against=["liger"], peers={"liger": wrong}, **SPEED)) == {"eager"}
    assert "liger: incorrect_value on 1000 float32" in said(capsys)


def test_a_peer_that_is_wrong_at_one_size_stays_a_rival_at_the_others(benched, capsys) -> None:
    wrong_when_long = replace(PEER, call=lambda x: x * (2.5 if x.numel() > 2000 else 2))
    frame = ledger.read(benched(HONEST, against=["liger"], peers={"liger": wrong_when_long}, **SPEED))
    assert set(frame[frame["kernel_provider"] == "liger"]["x_value"]) == {1000}
    assert "liger: incorrect_value on 5000 float32" in said(capsys)


def test_all_after_against_is_every_peer(benched, capsys) -> None:
    path = benched(HONEST, OURS, against=["all"], peers={"liger": PEER, "quack": ABSENT}, **SPEED)
    assert providers(path) == {"eager", "cuda", "liger"}
    assert "quack is not installed here" in said(capsys)


def test_an_exception_at_one_size_leaves_the_others(benched, capsys) -> None:
    def short_alone(x: torch.Tensor) -> torch.Tensor:
        if x.numel() > 2000:
            raise ValueError("too long")
        return x * 2

    with pytest.raises(typer.Exit):
        benched(HONEST, Implementation("triton", short_alone, willing), **SPEED)
    frame = ledger.read(benched.path)
    assert set(frame[frame["kernel_provider"] == "triton"]["x_value"]) == {1000}
    assert "triton: runtime_error on 5000 float32: ValueError: too long" in said(capsys)


def test_who_has_no_backward_is_timed_forward_alone(benched, capsys) -> None:
    refusing = replace(PEER, refusal=lambda x: "has no backward" if x.requires_grad else None)
    raising = Implementation("quack", lambda x: (x * 2).detach(), willing)
    frame = ledger.read(
        benched(HONEST, against=["liger", "quack"], peers={"liger": refusing, "quack": raising}, metric=["speed"])
    )
    modes = frame.groupby("kernel_provider")["kernel_operation_mode"].unique()
    assert {name: sorted(found) for name, found in modes.items()} == {
        "eager": ["backward", "forward", "full"],
        "liger": ["forward"],
        "quack": ["forward"],
    }
    assert "liger: refused on 1000 float32: has no backward; not timed" in said(capsys)


def test_all_operators_go_into_one_csv_and_one_that_fails_stops_no_other(benched, capsys) -> None:
    def raising(dtype: str, device_type: str) -> Any:
        raise RuntimeError("no sweep today")

    broken = replace(DOUBLE, sweeps=raising)
    backends = {"double": [HONEST], "scaled_sum": [honest(SCALED_SUM)]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("made_up").OPERATORS, "double", broken)
        with pytest.raises(typer.Exit) as ended:
            benched(operator=[], all_=True, backends=backends, x=[1000], **SPEED)
    assert ended.value.exit_code == 1
    assert set(ledger.read(benched.path)["kernel_name"]) == {"scaled_sum"}
    assert "double: RuntimeError: no sweep today; not measured" in said(capsys)
    benched(operator=["double", "scaled_sum"], backends=backends, x=[1000], **SPEED)
    assert set(ledger.read(benched.path)["kernel_name"]) == {"double", "scaled_sum"}


def test_what_no_operator_of_several_has_is_a_usage_error_as_of_one(benched, capsys) -> None:
    backends = {"double": [HONEST], "scaled_sum": [honest(SCALED_SUM)]}
    with pytest.raises(UsageError, match="nothing was measured: no row added"):
        benched(operator=[], all_=True, backends=backends, x=[7], **SPEED)
    assert "--x 7: double has on cpu sweeps over N of 1000, 5000; not measured" in said(capsys)
