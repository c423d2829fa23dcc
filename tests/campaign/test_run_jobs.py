"""How many builds a run does at a time: as many as cores are left, or as it was told."""

from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Call
from solutions import write

from kernelyard.cli import run as verb


@pytest.mark.parametrize(
    ("cores", "devices", "options", "jobs"),
    [
        (16, 1, (), 14),
        (16, 3, (), 10),
        (16, 8, (), 1),
        (2, 1, (), 1),
        (1, 1, (), 1),
        (16, 1, ("--jobs", "5"), 5),
        (2, 3, ("--jobs", "5"), 5),
    ],
)
def test_by_default_all_cores_but_two_a_device(
    tmp_path: Path, kernelyard: Call, monkeypatch: pytest.MonkeyPatch,
    cores: int, devices: int, options: tuple[str, ...], jobs: int,
) -> None:  # fmt: skip
    given: list[int] = []

    class Judging:
        unfit = ()

        def __init__(self, *_: Any, jobs: int, **__: Any) -> None:
            given.append(jobs)

        def run(self) -> None: ...

    monkeypatch.setattr(verb, "Pipeline", Judging)
    monkeypatch.setattr(verb, "usable_cores", lambda: cores)
    monkeypatch.setattr(verb, "resolve_devices", lambda *_: [torch.device("cpu")] * devices)
    write(tmp_path / "problems", tmp_path / "run")
    kernelyard("run", "run", "--suite", "problems", *options, cwd=tmp_path)
    assert given == [jobs]
