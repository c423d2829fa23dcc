"""GPU memory of the judge's that a worker can map, handed over as a file descriptor.

The same interface as `wire.SharedBytes`, for tensors that never pass through the host: 6 GiB cross in 24 to 33 ms on an
H100, against 6 s through a memfd. The judge owns the physical
memory, so nothing a worker does changes its size; a worker that dies drops its mapping and no more. NVIDIA only: where
the driver or its bindings are missing, tensors cross in host memory.
"""

from __future__ import annotations

import functools
import math
import os
from typing import Any

import torch
from torch import Tensor

from kernelyard.sandbox.clearing import gave_back
from kernelyard.sandbox.wire import POISON, WIRE_DTYPES, SharedBytes, TensorSpec

KEPT_BYTES = 256 << 20
"""Memory up to this size stays mapped on both sides until the worker ends: creating, importing and unmapping it is
milliseconds of a request. Two workers keep two such pieces each. Beyond it they do where the device has the room."""


class DriverError(RuntimeError):
    """A call of the CUDA driver's that failed."""


@functools.cache
def supported(device: torch.device) -> bool:
    """Whether memory of `device` can be shared by file descriptor from here. Touches the driver for a GPU alone."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    try:
        driver = _driver()
        torch.cuda.init()
        attributes = driver.CUdevice_attribute
        needed = (
            attributes.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            attributes.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
        )
        return all(_call(driver.cuDeviceGetAttribute, attribute, _index(device)) for attribute in needed)
    except (ImportError, DriverError):
        return False


class DeviceBytes:
    """Memory of a GPU under a virtual address of this process, shared by `fd`. Close it when done.

    `size` is what was asked for; the mapping is rounded up to the device's granularity of 2 MiB.
    """

    where = "device"
    kept = False
    """Whether both sides hold it beyond one transfer."""

    def __init__(self, fd: int, handle: Any, size: int, device: torch.device, *, writable: bool) -> None:
        """Map `handle`, which is let go in any case: the mapping alone keeps the memory."""
        driver = _driver()
        self.fd, self.size, self.device = fd, size, device
        self._mapped = _rounded(size, device)
        self._address = None
        try:
            address = _call(driver.cuMemAddressReserve, self._mapped, 0, driver.CUdeviceptr(0), 0)
            try:
                _call(driver.cuMemMap, address, self._mapped, 0, handle, 0)
            except DriverError:
                _call(driver.cuMemAddressFree, address, self._mapped)
                raise
            self._address = address
            access = driver.CUmemAccessDesc()
            access.location = _location(device)
            flags = driver.CUmemAccess_flags
            access.flags = flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE if writable else flags.CU_MEM_ACCESS_FLAGS_PROT_READ
            _call(driver.cuMemSetAccess, address, self._mapped, [access], 1)
            self._bytes = torch.as_tensor(_Pointer(int(address), self._mapped), device=device)
        except BaseException:
            self.close()
            raise
        finally:
            _call(driver.cuMemRelease, handle)

    @property
    def is_large(self) -> bool:
        """Whether it stays mapped only while the device has room for all that crosses."""
        return self.size > KEPT_BYTES

    @classmethod
    def create(cls, size: int, device: torch.device) -> DeviceBytes:
        """New memory of `size` bytes on `device`. Raises torch.OutOfMemoryError where the device has none left."""
        driver = _driver()
        torch.cuda.init()
        properties = _properties(device)
        handle = _call(driver.cuMemCreate, _rounded(size, device), properties, 0)
        try:
            kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            fd = int(_call(driver.cuMemExportToShareableHandle, handle, kind, 0))
        except BaseException:
            _call(driver.cuMemRelease, handle)
            raise
        made = cls(fd, handle, size, device, writable=True)
        # The driver clears pages that come from another process. These may come from this one, whose freed memory held
        # the expected values.
        made.poison()
        return made

    @classmethod
    def received(cls, fd: int, size: int, device: torch.device, *, writable: bool) -> DeviceBytes:
        """What another process created, mapped here. Not writable is a guard against accidents: who has the descriptor
        could map it otherwise."""
        try:
            driver = _driver()
            torch.cuda.init()
            kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            handle = _call(driver.cuMemImportFromShareableHandle, fd, kind)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, handle, size, device, writable=writable)

    def read(self, spec: TensorSpec, device: torch.device) -> Tensor:
        """A fresh copy of one tensor on `device`."""
        dtype = WIRE_DTYPES[spec.dtype]
        copy = torch.empty(spec.shape, dtype=dtype, device=device)
        if copy.numel():
            copy.copy_(self._place(spec.offset, dtype, copy.numel()).view(spec.shape))
        return copy

    def view(self, spec: TensorSpec) -> Tensor:
        """One tensor where it lies, as long as this is open."""
        return self._place(spec.offset, WIRE_DTYPES[spec.dtype], math.prod(spec.shape)).view(spec.shape)

    def take(self, spec: TensorSpec, device: torch.device) -> Tensor:
        """As `read`: what a call may write to is memory of its own."""
        return self.read(spec, device)

    def write(self, spec: TensorSpec, tensor: Tensor) -> None:
        if tensor.numel():
            self._place(spec.offset, tensor.dtype, tensor.numel()).view(tensor.shape).copy_(tensor.detach())

    def copy(self, offset: int, room: Tensor) -> None:
        """Fill `room`, of bytes, from byte `offset` on."""
        room.copy_(self._place(offset, torch.uint8, room.numel()))

    def poison(self, size: int | None = None) -> None:
        """NaN in every floating-point dtype, in the first `size` bytes; in all without it."""
        self._bytes[:size].fill_(POISON)

    def put_value(self, offset: int, value: int) -> None:
        """Have the current stream set the word at `offset`, when all that was enqueued before is done."""
        driver = _driver()
        _call(driver.cuStreamWriteValue32, _stream(self.device), self._word(offset), value, 0)

    def await_value(self, offset: int, value: int) -> None:
        """Have the current stream wait until the word at `offset` is `value` or more. No kernel waits: who holds the
        device meanwhile is whoever has something to do."""
        driver = _driver()
        flag = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        _call(driver.cuStreamWaitValue32, _stream(self.device), self._word(offset), value, int(flag))

    def offset_of(self, address: int, size: int) -> int | None:
        """Where so many bytes at a device's address lie in it; None where they do not."""
        offset = address - int(self._address or 0)
        return offset if 0 <= offset <= self.size - size else None

    def address(self, offset: int) -> int:
        return int(self._address or 0) + offset

    def _word(self, offset: int) -> Any:
        return _driver().CUdeviceptr(self.address(offset))

    def clear(self, size: int) -> None:
        """Zeros in the first `size` bytes."""
        self._bytes[:size].zero_()

    def settle(self) -> None:
        """Wait until what was written is there."""
        torch.cuda.synchronize(self.device)

    def let_go(self) -> None:
        """The end of one transfer."""
        if not self.kept:
            self.close()

    def close(self) -> None:
        """Unmap, whatever became of the other side. Copies that are on their way are waited for."""
        driver = _driver()
        if self._address is not None:
            address, self._address = self._address, None
            self._bytes = torch.empty(0, dtype=torch.uint8)
            self.settle()
            _call(driver.cuMemUnmap, address, self._mapped)
            _call(driver.cuMemAddressFree, address, self._mapped)
            gave_back(self._mapped, self.device)
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _place(self, offset: int, dtype: torch.dtype, count: int) -> Tensor:
        end = offset + count * dtype.itemsize
        if end > self.size:
            raise ValueError(f"a tensor that ends at byte {end} of {self.size}")
        return self._bytes[offset:end].view(dtype)


def device_alloc(size: int) -> int | None:
    """The address of new memory of this process's, for an allocator; None where there is none left."""
    try:
        return int(_call(_driver().cuMemAlloc, size))
    except (torch.OutOfMemoryError, DriverError):
        return None


def device_free(address: int) -> None:
    _call(_driver().cuMemFree, _driver().CUdeviceptr(address))


Shared = SharedBytes | DeviceBytes
"""Memory in which tensors cross, wherever it lies."""


class _Pointer:
    """A device address as torch takes it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),  # torch refuses a read-only one
            "strides": None,
            "version": 3,
        }


@functools.cache
def _driver() -> Any:
    """The driver's bindings, started. Raises ImportError where they or the driver are missing."""
    from cuda.bindings import driver

    _call(driver.cuInit, 0)
    return driver


def _stream(device: torch.device) -> Any:
    return _driver().CUstream(torch.cuda.current_stream(device).cuda_stream)


def _index(device: torch.device) -> int:
    return device.index or 0


def _location(device: torch.device) -> Any:
    driver = _driver()
    location = driver.CUmemLocation()
    location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = _index(device)
    return location


def _properties(device: torch.device) -> Any:
    driver = _driver()
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.requestedHandleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    properties.location = _location(device)
    return properties


def _rounded(size: int, device: torch.device) -> int:
    """`size` up to the device's granularity, and at least that."""
    driver = _driver()
    flag = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    granularity = int(_call(driver.cuMemGetAllocationGranularity, _properties(device), flag))
    return -(-max(size, 1) // granularity) * granularity


def _call(function: Any, *arguments: Any) -> Any:
    """The one result of a driver call. Raises DriverError, or torch.OutOfMemoryError where memory is what lacks."""
    error, *results = function(*arguments)
    if int(error):
        message = f"{function.__name__}: {error.name}"
        if error.name == "CUDA_ERROR_OUT_OF_MEMORY":
            raise torch.OutOfMemoryError(message)
        raise DriverError(message)
    return results[0] if results else None
