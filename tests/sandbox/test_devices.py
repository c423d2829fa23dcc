"""Which GPU a process is granted, and by which name it finds it, on machines made of files."""

from pathlib import Path

import pytest

from kernelyard.core.errors import UsageError
from kernelyard.sandbox import devices

INFORMATION = """Model: \t\t NVIDIA H200
IRQ:   \t\t 61
GPU UUID: \t {uuid}
Bus Location: \t 0000:00:0{position}.0
Device Minor: \t {minor}
"""


def machine(folder: Path, monkeypatch: pytest.MonkeyPatch, minors: list[int], *, uuids: bool = True) -> None:
    """A machine whose GPUs, in PCI order, have these numbers in the names of their nodes."""
    for position, minor in enumerate(minors):
        uuid = f"GPU-{position}abc" if uuids else "GPU-????????-????"
        gpu = folder / "gpus" / f"0000:00:0{position}.0"
        gpu.mkdir(parents=True)
        (gpu / "information").write_text(INFORMATION.format(uuid=uuid, position=position, minor=minor))
        (folder / f"nvidia{minor}").touch()
    for control in ("nvidiactl", "nvidia-uvm"):
        (folder / control).touch()
    monkeypatch.setattr(devices, "DEVICES", folder)
    monkeypatch.setattr(devices, "DRIVER_GPUS", folder / "gpus")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def granted(device: str) -> tuple[str, str]:
    found = devices.grant(device)
    return found.nodes[0].name, found.environment["CUDA_VISIBLE_DEVICES"]


def test_each_of_several_gpus_is_granted_by_its_own_node_and_found_by_its_uuid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index would be counted among the granted ones: cuInit found no device 3 where one node was open."""
    machine(tmp_path, monkeypatch, [2, 0, 3, 1])
    assert [granted(f"cuda:{i}") for i in range(4)] == [
        ("nvidia2", "GPU-0abc"),
        ("nvidia0", "GPU-1abc"),
        ("nvidia3", "GPU-2abc"),
        ("nvidia1", "GPU-3abc"),
    ]


def test_what_is_visible_to_the_judge_is_counted_from_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(tmp_path, monkeypatch, [0, 1, 2, 3])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-1abc")
    assert granted("cuda:0") == ("nvidia3", "GPU-3abc")
    assert granted("cuda:1") == ("nvidia1", "GPU-1abc")
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES names 2"):
        devices.grant("cuda:2")


def test_one_gpu_is_granted_by_the_name_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container that was given one of several: its node's number is not its index."""
    machine(tmp_path, monkeypatch, [5])
    assert granted("cuda:0") == ("nvidia5", "0")


def test_a_gpu_that_was_never_used_shows_no_uuid_and_torch_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(tmp_path, monkeypatch, [1, 0], uuids=False)
    monkeypatch.setattr(devices, "_asked", lambda device: f"GPU of {device}")
    assert granted("cuda:1") == ("nvidia0", "GPU of cuda:1")
    with pytest.raises(UsageError, match="no NVIDIA device '7'"):
        devices.grant("cuda:7")
