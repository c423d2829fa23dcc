"""Where a number was measured: device, driver, versions, commit, date."""

import os
import platform
import subprocess
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict

import kernelyard
from kernelyard.core import interpreter
from kernelyard.core.errors import UsageError


class Environment(BaseModel):
    """The facts without which a measured number means nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: str
    """torch's name of the device: cpu, cuda:0, xpu:0."""
    device_name: str
    """What the device calls itself: NVIDIA H100 80GB HBM3."""
    vendor: str
    """cuda, rocm, xpu or cpu."""
    arch: str | None
    """sm_90 on NVIDIA, gfx942 on AMD, None elsewhere."""
    driver: str | None
    cuda: str | None
    torch: str
    triton: str | None
    python: str
    kernelyard: str
    commit: str | None
    """Commit of the checkout the code ran from, with `+` when it had changes; None for an installed package."""
    date: str
    """UTC, ISO 8601, to the second."""

    @property
    def device_type(self) -> str:
        """torch's name of the kind of device: cpu, cuda, xpu."""
        return self.device.partition(":")[0]

    @property
    def line(self) -> str:
        parts = [
            self.device_name,
            f"torch {self.torch}",
            f"triton {self.triton}" if self.triton else "no triton",
        ]
        parts += [f"CUDA {self.cuda}"] if self.cuda else []
        parts += [f"driver {self.driver}"] if self.driver else []
        parts += [f"kernelyard {self.kernelyard}" + (f" ({self.commit})" if self.commit else ""), self.date]
        return " · ".join(parts)


def resolve_device(name: str | None) -> torch.device:
    """The device of `--device`, or the accelerator torch sees, or the CPU. Raises UsageError if it is not there.

    On a CPU Triton is told to interpret, unless the environment says otherwise.
    """
    device = _find_device(name)
    interpreter.choose_for(device.type)
    return device


def resolve_devices(name: str | None, wanted: int | None) -> list[torch.device]:
    """Every device of `--device`'s kind, or the one that it names by number; the first `wanted` of `--gpus`, if given.

    A CPU stands there as often as wanted. Raises UsageError if there are fewer.
    """
    first = resolve_device(name)
    if first.type == "cpu":
        return [first] * (wanted or 1)
    by_number = name is not None and torch.device(name).index is not None
    present = [first] if by_number else [torch.device(first.type, i) for i in range(torch.accelerator.device_count())]
    kind = ""
    if first.type == "cuda" and len(present) > 1:
        # Verdicts of one run are held against each other, and its settings name one device.
        kind = f" like {torch.cuda.get_device_name(first)}"
        present = [each for each in present if torch.cuda.get_device_name(each) == torch.cuda.get_device_name(first)]
    if wanted is not None and wanted > len(present):
        raise UsageError(f"--gpus {wanted}: only {len(present)} {first.type} device(s){kind} here")
    return present[:wanted]


_DEVICES = "cpu, cuda, cuda:N or xpu"


def _find_device(name: str | None) -> torch.device:
    if name is None:
        found = torch.accelerator.current_accelerator(check_available=True)
        return torch.device(found.type, 0) if found is not None else torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device {name!r}: expected {_DEVICES}") from None
    if device.type in ("meta", "cpu") and name != "cpu":
        raise UsageError(f"--device {name!r}: expected {_DEVICES}")
    if device.type == "cpu":
        return torch.device("cpu")
    present = torch.accelerator.current_accelerator(check_available=True)
    if present is None or present.type != device.type:
        raise UsageError(
            f"--device {name!r}: torch {torch.__version__} sees {present.type if present else 'no accelerator'}"
        )
    index = device.index or 0
    if index >= torch.accelerator.device_count():
        raise UsageError(f"--device {name!r}: only {torch.accelerator.device_count()} {device.type} device(s) here")
    return torch.device(device.type, index)


def describe(device: torch.device) -> Environment:
    """The environment of a measurement on `device`, now."""
    vendor = "rocm" if device.type == "cuda" and torch.version.hip else device.type
    return Environment(
        device=str(device),
        device_name=_device_name(device),
        vendor=vendor,
        arch=_arch(device, vendor),
        driver=_nvidia_driver() if vendor == "cuda" else None,
        cuda=torch.version.cuda if vendor == "cuda" else None,
        torch=torch.__version__,
        triton=_version("triton"),
        python=platform.python_version(),
        kernelyard=kernelyard.__version__,
        commit=_commit(),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "xpu":
        return torch.xpu.get_device_name(device)
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )
    return f"{model} ({torch.get_num_threads()} threads)"


def _arch(device: torch.device, vendor: str) -> str | None:
    if vendor == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return f"sm_{major}{minor}"
    if vendor == "rocm":
        return torch.cuda.get_device_properties(device).gcnArchName
    return None


def _nvidia_driver() -> str | None:
    first = next(iter(_lines(Path("/proc/driver/nvidia/version"))), "")
    return next((word for word in first.split() if word[:1].isdigit() and "." in word), None)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Of the checkout; where the code travels without one, KERNELYARD_COMMIT may name it."""
    if "KERNELYARD_COMMIT" in os.environ:
        return os.environ["KERNELYARD_COMMIT"]
    checkout = Path(kernelyard.__file__).parents[2]
    if not (checkout / ".git").exists():
        return None
    try:
        sha = _git(checkout, "rev-parse", "--short=10", "HEAD")
        changed = _git(checkout, "status", "--porcelain", "--untracked-files=no", "--", "src")
    except (OSError, subprocess.SubprocessError):
        return None
    return sha + ("+" if changed else "")


def _git(checkout: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()
