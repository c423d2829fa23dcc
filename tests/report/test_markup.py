"""What compilers and torch say is shown as they say it: their brackets are no markup of ours."""

from types import SimpleNamespace

import pytest
from rich.console import Console

from kernelyard.cli import check, doctor
from kernelyard.judge.prove import REFUSED, Proof
from kernelyard.report.ladder import ladder_table
from kernelyard.sandbox.launch import SandboxKind

pytestmark = pytest.mark.parametrize(
    "said", ["[enforce fail at alloc_cpu.cpp:124] err == 0", "nvrtc: [/usr/local/cuda/include/x.h] not found"]
)


def shown(capsys, *content: object) -> str:
    Console(width=500).print(*content)
    return capsys.readouterr().out


def test_a_ladder_shows_a_message_whole(said: str, make_ladder, capsys) -> None:
    ladder = make_ladder(eager=0.8)
    row = ladder.rows[0].model_copy(update={"message": said})
    assert said in shown(capsys, ladder_table(ladder.model_copy(update={"rows": (row,)})))


def test_check_shows_a_refusal_whole(said: str, capsys) -> None:
    refused = Proof(operator="softmax", backend="cuda", workload="8", status=REFUSED, message=said)
    assert said in shown(capsys, check._summary("softmax", ["cuda"], [refused]))


def test_doctor_shows_what_it_was_told_whole(said: str, monkeypatch, capsys) -> None:
    """Of a device that was set aside, of the toolchain, of bubblewrap and of a witness."""
    record = SimpleNamespace(layer="network", holds=True, available=True, tried=100 * "-", detail=said)
    monkeypatch.setattr(doctor, "table_console", lambda: Console(width=500))
    monkeypatch.setattr(doctor.Ward, "usual", lambda: SimpleNamespace(refusal=lambda where: said))
    monkeypatch.setattr(doctor, "_device", lambda *given: iter(()))
    monkeypatch.setattr(doctor, "_toolchain", lambda: iter([("NVRTC", said)]))
    monkeypatch.setattr(doctor, "choose", lambda *given: SandboxKind.NATIVE)
    monkeypatch.setattr(doctor, "bubblewrap_problem", lambda where: said)
    monkeypatch.setattr(doctor, "witness", lambda *given: [record])
    doctor.doctor(device="cpu")
    assert capsys.readouterr().out.count(said) == 4
