"""Which device nodes a process needs for the device it was granted, and how that device is named inside."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from kernelyard.core.errors import UsageError

_NVIDIA_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-caps")
_AMD_COMPUTE = Path("/dev/kfd")
DEVICES = Path("/dev")
DRIVER_GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Grant:
    """The nodes under /dev that are opened to the process and the variables that select the device."""

    nodes: tuple[Path, ...]
    environment: dict[str, str]


def is_nvidia(device: str) -> bool:
    """Whether `device` is reached through the CUDA driver; ROCm calls its devices "cuda" too."""
    return device.startswith("cuda") and not _AMD_COMPUTE.exists()


def likely(requested: str | None) -> str | None:
    """What `--device` will come to, told without torch by the nodes under /dev; None where that is not clear.

    A guess: torch has the last word.
    """
    gpu = (bool(_nvidia_nodes()) or _AMD_COMPUTE.exists()) and os.environ.get("CUDA_VISIBLE_DEVICES") != ""
    if requested is None or requested == "cuda":
        return "cuda:0" if gpu else "cpu" if requested is None and not Path("/dev/dri").exists() else None
    return requested if requested == "cpu" or (gpu and re.fullmatch(r"cuda:\d+", requested)) else None


def grant(device: str) -> Grant:
    """What "cpu", "cuda:N" or "xpu:N" needs, N as the judge counts. Raises UsageError where there is no such device."""
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return Grant((), {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""})
    if kind == "xpu":
        return Grant((Path("/dev/dri"),), {"ZE_AFFINITY_MASK": index or "0"})
    if kind != "cuda":
        raise UsageError(f"no sandbox for device {device!r}: expected cpu, cuda:N or xpu:N")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else None
    position = int(index or 0)
    if names is not None and position >= len(names):
        raise UsageError(f"no device {device!r}: CUDA_VISIBLE_DEVICES names {len(names)}")
    name = names[position].strip() if names else str(position)
    if not is_nvidia(device):
        # One node serves every AMD GPU for compute, so a single one cannot be granted by nodes alone.
        return Grant((_AMD_COMPUTE, Path("/dev/dri")), {"HIP_VISIBLE_DEVICES": name})
    node, inside = _nvidia_gpu(name)
    control = tuple(path for path in map(Path, _NVIDIA_CONTROL) if path.exists())
    variables = {"CUDA_VISIBLE_DEVICES": inside or _asked(device), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return Grant((node, *control), variables)


def not_granted(device: str) -> list[Path]:
    """The NVIDIA GPUs of this machine that `device` is not."""
    granted = grant(device).nodes
    return [node for node in _nvidia_nodes() if node not in granted]


def _nvidia_nodes() -> list[Path]:
    """One of each GPU."""
    return sorted(path for path in DEVICES.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name))


def _nvidia_gpu(name: str) -> tuple[Path, str]:
    """The node of the GPU that CUDA_VISIBLE_DEVICES calls `name` - an index in PCI order, or a UUID - and its UUID.

    The driver counts the GPUs whose nodes it can open: with one granted that is GPU 0 inside, whatever its index out
    here, and on a machine of four cuInit found no device for those of another index. No UUID where /proc shows none.
    """
    nodes = _nvidia_nodes()
    if not nodes:
        raise UsageError("no NVIDIA device: /dev holds no nvidia0 or other GPU node")
    if len(nodes) == 1:
        return nodes[0], name
    gpus: dict[str, tuple[str, str]] = {}
    for position, directory in enumerate(sorted(DRIVER_GPUS.glob("*"))):
        text = (directory / "information").read_text()
        minor = re.search(r"Device Minor:\s*(\d+)", text)
        uuid = re.search(r"GPU UUID:\s*(GPU-[0-9a-f-]+)", text)
        if minor:
            gpus[str(position)] = minor[1], uuid[1] if uuid else ""
            if uuid:
                gpus[uuid[1]] = minor[1], uuid[1]
    number, inside = gpus.get(name, (name, name if name.startswith("GPU-") else ""))
    node = DEVICES / f"nvidia{number}"
    if not node.exists():
        raise UsageError(f"no NVIDIA device {name!r}: expected one of {', '.join(map(str, nodes))}")
    return node, inside


def _asked(device: str) -> str:
    """The UUID by torch: until a GPU is first used, /proc shows question marks in its place."""
    import torch

    return f"GPU-{torch.cuda.get_device_properties(torch.device(device)).uuid}"
