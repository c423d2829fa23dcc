"""Kernels of a .cu as callables that launch on torch's current stream.

The launch goes to the driver through ctypes with arguments laid out beforehand: what is left per call is to write
the tensors' addresses and the stream. Through `cuda.core.launch` the same took 4 to 5 us (slow host, 2026-11).
"""

import ctypes
import threading
from functools import cache
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver
from cuda.core import Device, ObjectCode

from kernelyard.kernels.counters import launches
from kernelyard.kernels.nvrtc import Defines, cubin

Grid = int | tuple[int, int]

_kernels: dict[tuple[Any, ...], Any] = {}
_PORTABLE_CLUSTER = 8


class _Thread(threading.local):
    bound = False


_thread = _Thread()


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: 64 bytes of value after an id that is padded to 8."""

    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


_CLUSTER_DIMENSION = 4
_COOPERATIVE = 2
_PROGRAMMATIC_SERIALIZATION = 6


def architecture(device: torch.device) -> str:
    """The target for a device: sm_90a on Hopper, whose own instructions need the `a`, else sm_<major><minor>."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}" + ("a" if major == 9 else "")


class Launcher:
    """One kernel at one block shape; built once, called often.

    Every argument of the kernel is 64 bits wide: a tensor's address or an integer.
    """

    def __init__(
        self,
        label: str,
        source: Path,
        kernel: str,
        defines: Defines,
        *,
        device: torch.device,
        threads: int,
        cluster: int = 1,
        shared_bytes: int = 0,
        cooperative: bool = False,
        overlapping: bool = False,
    ) -> None:
        """`label` is the name launches are counted under; `cluster` CTAs share a row through each other's memory.

        `cooperative`: all CTAs are resident at once, or the launch fails. `overlapping`: may start while the kernel
        before it on the stream ends, and itself waits for that one's results (griddepcontrol.wait).
        """
        self.label = label
        self.device = device
        self.threads = threads
        self.cluster = cluster
        self.shared_bytes = shared_bytes
        self.cooperative = cooperative
        self.overlapping = overlapping
        self.function = int(_kernel(source, kernel, defines, device, cluster, shared_bytes)._handle)

    def bind(self, grid: Grid, addresses: int, *sizes: int) -> "Bound":
        """The launch of `grid` CTAs, or clusters of CTAs where the kernel has them, with every size given.

        What is called with is the addresses alone, `addresses` of them, which come before the sizes.
        """
        return Bound(self, grid, addresses, sizes)

    def __call__(self, grid: Grid, *arguments: int) -> None:
        """Launch once, with every argument given now; `grid` as in `bind`."""
        Bound(self, grid, len(arguments), ())(*arguments)

    def occupancy(self) -> int:
        """CTAs of this kernel that one multiprocessor holds at a time."""
        with torch.cuda.device(self.device):
            torch.cuda.current_stream(self.device)
            status, count = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                driver.CUfunction(self._as_function()), self.threads, self.shared_bytes
            )
        _require(status, "occupancy")
        return count

    def _as_function(self) -> int:
        status, function = driver.cuKernelGetFunction(driver.CUkernel(self.function))
        _require(status, "cuKernelGetFunction")
        return int(function)


class Bound:
    """A kernel with its grid and sizes; called with addresses. Calls from several threads do not meet."""

    __slots__ = ("addresses", "function", "grid", "index", "label", "launcher", "packets", "sizes")

    def __init__(self, launcher: Launcher, grid: Grid, addresses: int, sizes: tuple[int, ...]) -> None:
        self.launcher, self.grid, self.addresses, self.sizes = launcher, grid, addresses, sizes
        self.label, self.function, self.index = launcher.label, launcher.function, launcher.device.index
        self.packets: dict[int, _Packet] = {}

    def __call__(self, *addresses: int) -> None:
        """Launch on the device's current stream."""
        if not _thread.bound:
            # A thread of autograd may not have used its device yet, and the driver launches only into a bound context.
            Device(torch._C._cuda_getDevice()).set_current()
            _thread.bound = True
        index = self.index
        if index == torch._C._cuda_getDevice():
            self._launch(addresses, torch._C._cuda_getCurrentRawStream(index))
        else:
            with torch.cuda.device(index):
                self._launch(addresses, torch._C._cuda_getCurrentRawStream(index))
        launches[self.label] += 1

    def _launch(self, addresses: tuple[int, ...], stream: int) -> None:
        thread = threading.get_ident()
        packet = self.packets.get(thread)
        if packet is None:
            packet = self.packets[thread] = _Packet(self)
        packet.values[: self.addresses] = addresses  # type: ignore[call-overload]
        packet.config.stream = stream
        status = _driver_launch()(packet.at_config, self.function, packet.at_pointers, None)
        if status:
            raise RuntimeError(f"{self.label}: the launch failed: {driver.CUresult(status).name}")


class _Packet:
    """One thread's arguments and configuration of a launch, laid out as the driver reads them."""

    def __init__(self, bound: Bound) -> None:
        launcher, sizes = bound.launcher, bound.sizes
        count = bound.addresses + len(sizes)
        self.values = (ctypes.c_ulonglong * count)()
        self.values[bound.addresses :] = [size % (1 << 64) for size in sizes]
        first = ctypes.addressof(self.values)
        self.pointers = (ctypes.c_void_p * count)(*[first + 8 * i for i in range(count)])
        self.attributes = (_Attribute * 3)(*_attributes(launcher))
        x, y = bound.grid if isinstance(bound.grid, tuple) else (bound.grid, 1)
        self.config = _Config(
            (ctypes.c_uint * 3)(x * launcher.cluster, y, 1),
            (ctypes.c_uint * 3)(launcher.threads, 1, 1),
            launcher.shared_bytes,
            None,
            ctypes.cast(self.attributes, ctypes.POINTER(_Attribute)),
            len(_attributes(launcher)),
        )
        self.at_config = ctypes.addressof(self.config)
        self.at_pointers = ctypes.addressof(self.pointers)


def _attributes(launcher: Launcher) -> list[_Attribute]:
    found = []
    if launcher.cluster > 1:
        found.append(_Attribute(_CLUSTER_DIMENSION, 0, (ctypes.c_uint * 16)(launcher.cluster, 1, 1)))
    if launcher.cooperative:
        found.append(_Attribute(_COOPERATIVE, 0, (ctypes.c_uint * 16)(1)))
    if launcher.overlapping:
        found.append(_Attribute(_PROGRAMMATIC_SERIALIZATION, 0, (ctypes.c_uint * 16)(1)))
    return found


@cache
def _driver_launch() -> Any:
    function = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    function.argtypes = [ctypes.c_void_p] * 4
    function.restype = ctypes.c_int
    return function


def _kernel(
    source: Path,
    name: str,
    defines: Defines,
    device: torch.device,
    cluster: int,
    shared_bytes: int,
) -> Any:
    key = (source, name, defines, device.index, cluster, shared_bytes)
    if key not in _kernels:
        with torch.cuda.device(device):
            torch.cuda.current_stream(device)
            code = ObjectCode.from_cubin(cubin(source, defines, architecture(device)))
            kernel = code.get_kernel(name)
            attribute = driver.CUfunction_attribute
            if cluster > _PORTABLE_CLUSTER:
                _allow(kernel, attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, device)
            if shared_bytes > 48 * 1024:
                _allow(kernel, attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes, device)
        _kernels[key] = kernel
    return _kernels[key]


def _allow(kernel: Any, attribute: Any, value: int, device: torch.device) -> None:
    (status,) = driver.cuKernelSetAttribute(
        attribute, value, driver.CUkernel(int(kernel._handle)), driver.CUdevice(device.index)
    )
    _require(status, f"{attribute.name} = {value}")


def _require(status: Any, what: str) -> None:
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"the driver refuses {what}: {status.name}")
