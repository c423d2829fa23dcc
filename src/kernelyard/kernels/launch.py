"""Kernels of a .cu as callables that launch on torch's current stream."""

import threading
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, ObjectCode, Stream, launch

from kernelyard.kernels.counters import launches
from kernelyard.kernels.nvrtc import Defines, cubin

_kernels: dict[tuple[Any, ...], Any] = {}
_streams: dict[int, Stream] = {}
_PORTABLE_CLUSTER = 8


class _Thread(threading.local):
    bound = False


_thread = _Thread()


def architecture(device: torch.device) -> str:
    """The target for a device: sm_90a on Hopper, whose own instructions need the `a`, else sm_<major><minor>."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}" + ("a" if major == 9 else "")


class Launcher:
    """One kernel at one launch shape; built once, called often.

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
        threads: int | tuple[int, int],
        cluster: int = 1,
        shared_bytes: int = 0,
    ) -> None:
        """`label` is the name launches are counted under; `cluster` CTAs share a row through each other's memory."""
        self.label = label
        self.device_index = device.index
        self.shape: dict[str, Any] = {"block": threads, "shmem_size": shared_bytes}
        if cluster > 1:
            self.shape["cluster"] = cluster
        self.kernel = _kernel(source, kernel, defines, device, cluster, shared_bytes)
        self.configs: dict[Any, LaunchConfig] = {}

    def __call__(self, grid: int | tuple[int, int], *arguments: int) -> None:
        """Launch `grid` CTAs, or clusters of CTAs where the kernel has them, on the device's current stream."""
        config = self.configs.get(grid)
        if config is None:
            config = self.configs[grid] = LaunchConfig(grid=grid, **self.shape)
        index = self.device_index
        if not _thread.bound:
            # A thread of autograd may not have used its device yet, and the driver launches only into a bound context.
            Device(torch._C._cuda_getDevice()).set_current()
            _thread.bound = True
        if index == torch._C._cuda_getDevice():
            launch(_current_stream(index), config, self.kernel, *arguments)
        else:
            with torch.cuda.device(index):
                launch(_current_stream(index), config, self.kernel, *arguments)
        launches[self.label] += 1


def _current_stream(index: int) -> Stream:
    handle = torch._C._cuda_getCurrentRawStream(index)
    stream = _streams.get(handle)
    if stream is None:
        stream = _streams[handle] = Stream.from_handle(handle)
    return stream


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
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"the driver refuses {attribute.name} = {value}: {status.name}")
