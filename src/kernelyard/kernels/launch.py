"""Kernels of a .cu as callables that launch on torch's current stream.

A plain launch goes through what torch.compile launches Triton kernels with, 3.4 us a call of which the driver takes 3.0
(H100 host, 2026-11). A launch with attributes (clusters, cooperation, overlap), which that does not know, goes to the
driver through ctypes with arguments laid out beforehand: 4.0 us.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver
from cuda.core import Device, ObjectCode

from kernelyard.core.errors import UsageError
from kernelyard.kernels.counters import tally
from kernelyard.kernels.nvrtc import Defines, cubin
from kernelyard.kernels.plans import PORTABLE_CLUSTER

Grid = int | tuple[int, int]
Bound = Callable[..., None]
"""A kernel with its grid and sizes: called with addresses, it launches on the device's current stream."""

_kernels: dict[tuple[Any, ...], Any] = {}
_WARP = 32
_MOST_CTAS = ((1 << 31) - 1, (1 << 16) - 1)
"""Along a grid's sides, on every chip."""


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
_NO_CONTEXT = 201


def architecture(device: torch.device) -> str:
    """The target for a device: sm_<major><minor>, with an `a` from Hopper on for setmaxnreg, which needs it."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


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
        before it on the stream ends, and itself waits for that one's results (griddepcontrol.wait); chips before Hopper
        know no such launch and start it after the other.
        """
        self.label = label
        self.device = device
        self.threads = threads
        self.cluster = cluster
        self.shared_bytes = shared_bytes
        self.cooperative = cooperative
        self.overlapping = overlapping and torch.cuda.get_device_capability(device)[0] >= 9
        self.function = int(_kernel(source, kernel, defines, device, cluster, shared_bytes)._handle)

    def bind(self, grid: Grid, addresses: int, *sizes: int) -> Bound:
        """The launch of `grid` CTAs, or clusters of CTAs where the kernel has them, with every size given.

        What is called with is the addresses alone, `addresses` of them, which come before the sizes. A closure, since
        its names are found faster than an object's. Raises UsageError for more CTAs than a grid has.
        """
        x, y = grid if isinstance(grid, tuple) else (grid, 1)
        if x * self.cluster > _MOST_CTAS[0] or y > _MOST_CTAS[1]:
            # A side of 2^32 and one would be launched as one CTA: its place in the configuration has 32 bits.
            most = " x ".join(map(str, _MOST_CTAS))
            raise UsageError(
                f"{self.label} takes {x * self.cluster} x {y} CTAs for this shape, expected {most} at most:"
                " use backend='eager'"
            )
        # torch multiplies the grid's sides in 32 bits, to see whether it is empty.
        launch_kernel = _torch_launch()
        if launch_kernel is None or _attributes(self) or self.threads % _WARP or x * y >= 1 << 31:
            return self._bind_to_driver(grid, addresses, sizes)
        index, function, several, count = self.device.index, self.function, _several_devices(), tally(self.label)
        device_now, stream_of = torch._C._cuda_getDevice, torch._C._cuda_getCurrentRawStream
        warps, shared_bytes = self.threads // _WARP, self.shared_bytes
        types = "K" * addresses + "l" * len(sizes)

        def launch(*given: int) -> None:
            if several and index != device_now():
                with torch.cuda.device(index):
                    launch(*given)
                return
            # A thread that has not used its device yet is given the context by this too.
            launch_kernel(function, x, y, 1, warps, shared_bytes, types, given + sizes, stream_of(index))
            count[0] += 1

        return launch

    def _bind_to_driver(self, grid: Grid, addresses: int, sizes: tuple[int, ...]) -> Bound:
        """Each call takes a packet of its own, so that calls from several threads do not meet."""
        index, function, several, count = self.device.index, self.function, _several_devices(), tally(self.label)
        device_now, stream_of = torch._C._cuda_getDevice, torch._C._cuda_getCurrentRawStream
        launch_kernel = _driver_launch()
        free: list[_Packet] = []

        def launch(*given: int) -> None:
            if several and index != device_now():
                with torch.cuda.device(index):
                    launch(*given)
                return
            try:
                packet = free.pop()
            except IndexError:
                packet = _Packet(self, grid, addresses, sizes)
            values, config, at_config, at_pointers = packet.parts
            values[:addresses] = given  # type: ignore[call-overload]
            config.stream = stream_of(index)
            status = launch_kernel(at_config, function, at_pointers, None)
            if status == _NO_CONTEXT:
                # A thread that has not used its device yet: nothing was launched.
                Device(index).set_current()
                status = launch_kernel(at_config, function, at_pointers, None)
            if status:
                raise RuntimeError(f"{self.label}: the launch failed: {driver.CUresult(status).name}")
            free.append(packet)
            count[0] += 1

        return launch

    def __call__(self, grid: Grid, *arguments: int) -> None:
        """Launch once, with every argument given now; `grid` as in `bind`."""
        self.bind(grid, len(arguments))(*arguments)

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
        # A thread of autograd may not have used its device yet, and the driver answers only in a bound context.
        Device(self.device.index).set_current()
        status, function = driver.cuKernelGetFunction(driver.CUkernel(self.function))
        _require(status, "cuKernelGetFunction")
        return int(function)


class _Packet:
    """The arguments and the configuration of one launch, laid out as the driver reads them."""

    def __init__(self, launcher: Launcher, grid: Grid, addresses: int, sizes: tuple[int, ...]) -> None:
        count = addresses + len(sizes)
        self.values = (ctypes.c_ulonglong * count)()
        self.values[addresses:] = [size % (1 << 64) for size in sizes]
        first = ctypes.addressof(self.values)
        self.pointers = (ctypes.c_void_p * count)(*[first + 8 * i for i in range(count)])
        self.attributes = (_Attribute * 3)(*_attributes(launcher))
        x, y = grid if isinstance(grid, tuple) else (grid, 1)
        self.config = _Config(
            (ctypes.c_uint * 3)(x * launcher.cluster, y, 1),
            (ctypes.c_uint * 3)(launcher.threads, 1, 1),
            launcher.shared_bytes,
            None,
            ctypes.cast(self.attributes, ctypes.POINTER(_Attribute)),
            len(_attributes(launcher)),
        )
        self.parts = (self.values, self.config, ctypes.addressof(self.config), ctypes.addressof(self.pointers))


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
def _several_devices() -> bool:
    return torch.cuda.device_count() > 1


@cache
def _torch_launch() -> Any:
    """Takes function, grid, warps, shared bytes, types, arguments, stream. Private to torch: None where it is not."""
    try:
        launch_kernel = torch._C._StaticCudaLauncher._launch_kernel
        # An empty grid launches nothing, and tells whether the arguments are those that we know.
        launch_kernel(0, 0, 1, 1, 1, 0, "K", (0,), 0)
    except (AttributeError, TypeError):
        return None
    return launch_kernel


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
            if cluster > PORTABLE_CLUSTER:
                _allow(kernel, attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, device)
            if shared_bytes:
                # More than 48 KB, the kernel's static arrays included, must be asked for.
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
