"""How CUDA kernels that work along rows or columns are launched: and why.

An operator brings its `Limits`, one for each direction, and a .cu for each `source` that a plan may name.
Percentages are of the copy bandwidth, taken with softmax on an H100 (2026-11).
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch

from kernelyard.kernels.layout import Rows
from kernelyard.kernels.nvrtc import Defines
from kernelyard.kernels.powers import power_above

VECTOR = 16
"""Bytes of the widest load; a row's elements before and after the aligned ones are masked."""


@dataclass(frozen=True)
class Stage:
    """The shared memory of one CTA, for one input of a row; a cluster's CTAs hold up to 16 times that."""

    threads: int
    bytes: int
    one_in_registers: bool = False
    """One of two inputs goes through registers instead, so that more CTAs fit an SM."""


@dataclass(frozen=True)
class Limits:
    """What a thread, a CTA and a cluster hold of a row, for one direction of an operator."""

    name: str
    """`forward` or `backward`: the end of the kernels' names."""
    inputs: int
    """Tensors whose rows are held at once."""
    stages: tuple[Stage, ...]
    """In the order they are tried."""
    registers: int = 64
    """Bytes of each input in a thread's registers. With 128 too few threads fit an SM: 92 % at N = 4096, 64: 100."""
    shared_cta: int = 128
    """Threads of a CTA that holds several rows; 64 to 256 differ by 0.3 %."""
    threads: int = 512
    """Most threads of a CTA that holds one row in registers. A cluster's registers hold longer rows, but too few of
    them at once: 90 % at 65536 elements of 16 bits and 80 % at 262144, where shared memory reaches 99."""
    line: int = 256
    """Most bytes side by side in a CTA along columns."""
    unbounded: bool = False
    """Whether rows in shared memory that fill all threads are worked on without a look at where they end."""
    chip_full: tuple[int, int] = (512, 4)
    """Threads, and tiles in registers, of a CTA whose share of a row over the chip fills more than half of its ring."""


LARGEST_CLUSTER = 16
"""More than 8 is not portable, but every Hopper allows it, and Blackwell in a data centre."""
PORTABLE_CLUSTER = 8


class Fit(NamedTuple):
    """How vectors fit a call's tensors: elements to a vector, and whether rows start between vectors."""

    vec: int
    shifted: bool


@dataclass(frozen=True)
class RowPlan:
    """One row in the registers of a CTA's threads; `rows` of them to a CTA."""

    fit: Fit
    threads: int
    rows: int
    items: int
    cluster: int = 1
    source = "rows"
    kernels = ("rows",)

    @property
    def macros(self) -> Defines:
        return (
            ("VEC", self.fit.vec),
            ("SHIFTED", int(self.fit.shifted)),
            ("THREADS", self.threads),
            ("ROWS", self.rows),
            ("ITEMS", self.items),
            ("CLUSTER", self.cluster),
            ("OFFSET", "int"),
        )

    @property
    def block(self) -> int:
        return self.threads * self.rows

    def grid(self, rows: int) -> int:
        return -(-rows // self.rows)


@dataclass(frozen=True)
class StagedPlan(RowPlan):
    """One row in the shared memory of a cluster's CTAs, one of two inputs in registers where that makes room."""

    one_in_registers: bool = False
    source = "staged"
    kernels = ("staged",)

    @property
    def macros(self) -> Defines:
        return (*super().macros, ("ONE_IN_REGISTERS", int(self.one_in_registers)))

    def filled(self, length: int) -> bool:
        """Whether all vectors of all threads are a row's."""
        return not self.fit.shifted and length == self.fit.vec * self.items * self.threads * self.cluster

    def shared_bytes(self, limits: Limits) -> int:
        staged = limits.inputs - 1 if self.one_in_registers else limits.inputs
        return self.threads * self.items * VECTOR * staged


@dataclass(frozen=True)
class ChipPlan:
    """Every row over all `ctas` of a grid that is resident at once, `share` vectors of it to a CTA (chip.cuh)."""

    fit: Fit
    inputs: int
    threads: int
    items: int
    ctas: int
    share: int
    ring: int
    flight: int
    tail: int
    full: int
    """Tiles that every CTA has all of: the last one's share is shorter."""
    cluster = 1
    source = "chip"
    kernels = ("chip",)

    @property
    def tiles(self) -> int:
        """Of a CTA's share."""
        return -(-self.share // (self.items * self.threads))

    @property
    def macros(self) -> Defines:
        return (
            *RowPlan(self.fit, self.threads, 1, self.items).macros,
            ("INPUTS", self.inputs),
            ("RING", self.ring),
            ("FLIGHT", self.flight),
            ("TAIL", self.tail),
            ("TILES", self.tiles),
            ("FULL", self.full),
            ("CTAS", self.ctas),
            ("BOARD_BYTES", self.board_bytes),
        )

    @property
    def block(self) -> int:
        return self.threads + 128

    @property
    def board_bytes(self) -> int:
        """Of chip.cuh's Board, at most: parts of 16 bytes and two words for each of its rows."""
        depth = -(-(self.ring - self.flight + self.tail) // self.tiles) + 2
        bytes_ = depth * (16 * (self.threads // 32 + 1) + 16)
        return -(-bytes_ // 128) * 128  # where the ring begins

    def shared_bytes(self, limits: Limits) -> int:
        return self.ring * limits.inputs * self.items * self.threads * VECTOR


@dataclass(frozen=True)
class SplitPlan:
    """One row over the chip: `chunks` CTAs of `tiles` steps each, `batch` rows at a time so that L2 keeps them."""

    fit: Fit
    threads: int
    items: int
    chunks: int
    tiles: int
    batch: int
    cluster = 1
    source = "split"
    kernels = ("split_part", "split_write")

    @property
    def macros(self) -> Defines:
        row = RowPlan(self.fit, self.threads, 1, self.items).macros
        return tuple((name, "Index" if name == "OFFSET" else value) for name, value in row)

    @property
    def block(self) -> int:
        return self.threads


@dataclass(frozen=True)
class ColumnPlan:
    """`across` x `along` threads of one vector each, over columns and along them; `chunks` CTAs to a long column."""

    vec: int
    across: int
    along: int
    items: int
    chunks: int = 1
    tiles: int = 1
    cluster = 1
    source = "columns"

    @property
    def kernels(self) -> tuple[str, ...]:
        return ("columns",) if self.chunks == 1 else ("columns_part", "columns_write")

    @property
    def macros(self) -> Defines:
        return (("VEC", self.vec), ("BX", self.across), ("BY", self.along), ("ITEMS", self.items))

    @property
    def block(self) -> int:
        return self.across * self.along

    def grid(self, view: Rows) -> tuple[int, int]:
        return view.outer * -(-view.inner // (self.across * self.vec)), self.chunks


_COLUMN_SHAPES = ((256, 128), (128, 256), (128, 512), (128, 1024), (64, 512), (32, 512))
"""Bytes side by side and threads, the first that holds a column: two lines of 128 bytes (94 to 96 % with 64 channels of
512 x 512, one line 88 to 91), or one where the threads suffice."""

Plan = RowPlan | ChipPlan | SplitPlan | ColumnPlan


def fit(size: int, length: int, pitch: int, addresses: tuple[int, ...]) -> Fit:
    """How vectors fit rows of `length` elements of `size` bytes: inputs `pitch` elements apart, outputs adjacent."""
    start = addresses[0] % VECTOR
    wide = VECTOR // size
    for address in addresses:
        if address % VECTOR != start:
            return Fit(1, False)
    if not start and not length % wide and not pitch % wide:
        return Fit(wide, False)
    if (pitch - length) % wide or length < 16 * wide:
        # Short rows do better element by element: 96 % at N = 100, where masked vectors reach 86.
        return Fit(1, False)
    return Fit(wide, True)


def alignment(addresses: tuple[int, ...]) -> int:
    """Bytes, up to a vector's, that divide every address."""
    bytes_ = VECTOR
    while any(address % bytes_ for address in addresses):
        bytes_ //= 2
    return bytes_


def rows(limits: Limits, device: torch.device, size: int, length: int, fit: Fit) -> RowPlan | ChipPlan | SplitPlan:
    """The plan for rows of `length` elements of `size` bytes: the fewest threads whose registers hold a row."""
    vectors = -(-(length + (fit.vec - 1 if fit.shifted else 0)) // fit.vec)
    items = max(1, limits.registers // (fit.vec * size)) if fit.vec > 1 else 16
    threads = min(32, power_above(_least_threads(vectors, fit)))
    while vectors > threads * items and threads < limits.threads:
        threads *= 2
    if vectors <= threads * items:
        cta = limits.shared_cta if threads >= 8 else 2 * limits.shared_cta
        return RowPlan(fit, threads, max(1, cta // threads), -(-vectors // threads))
    largest = largest_cluster(device)
    if fit.vec > 1 and largest > 1:
        room = _shared_bytes(device)
        for stage in limits.stages:
            staged = _staged(stage, vectors, fit)
            if staged.cluster <= largest and staged.shared_bytes(limits) <= room:
                return staged
    if fit.vec > 1 and torch.cuda.get_device_capability(device)[0] >= 8:
        plan = _chip(limits, device, vectors, fit)
        if plan is not None:
            return plan
    tiles = -(-vectors // (512 * items))
    chunks = min(tiles, 1024)
    batch = max(1, (24 << 20) // (length * size))
    return SplitPlan(fit, 512, items, chunks, -(-tiles // chunks), batch)


def processors(device: torch.device) -> int:
    """Multiprocessors of a device."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def largest_cluster(device: torch.device) -> int:
    """CTAs of the largest cluster that a device runs: 1 before Hopper."""
    major = torch.cuda.get_device_capability(device)[0]
    if major in (9, 10):
        return LARGEST_CLUSTER
    return PORTABLE_CLUSTER if major > 10 else 1


def _shared_bytes(device: torch.device) -> int:
    """Of the rows that a CTA holds: what it may have, without what a kernel takes beside them."""
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin - _OWN  # type: ignore[attr-defined]


def _least_threads(vectors: int, fit: Fit) -> int:
    """Threads of a short row. Several vectors each keep more bytes on their way; one each reads neighbours together.

    Single elements: 84 % at N = 10 with up to 7 each, 71 with 4 and 18 with one (bf16); shorter rows want 4 at most,
    61 % at N = 3 and 85 at 7. Vectors of 16 bytes: 82 % at N = 100 with two each, 71 with one.
    """
    if fit.vec == 1:
        return -(-vectors // (4 if vectors < 8 else 7))
    return vectors if vectors < 8 else -(-vectors // 2)


def _staged(stage: Stage, vectors: int, fit: Fit) -> StagedPlan:
    cluster = power_above(-(-vectors * VECTOR // stage.bytes))
    items = -(-vectors // (stage.threads * cluster))
    return StagedPlan(fit, stage.threads, 1, items, cluster, stage.one_in_registers)


_CHIP_TILE = 1024
"""Vectors of a tile, over all inputs."""
_OWN = 6 << 10
"""Bytes of shared memory that a kernel takes beside the rows it holds."""


def _chip(limits: Limits, device: torch.device, vectors: int, fit: Fit) -> ChipPlan | None:
    """One CTA to an SM, with all of its shared memory as the ring; None for a row that is too long for it."""
    room = torch.cuda.get_device_properties(device).shared_memory_per_block_optin  # type: ignore[attr-defined]
    most = room // (_CHIP_TILE * VECTOR)
    chosen = (_ring(limits, processors(device), vectors, fit, ring) for ring in (most, most - 1))
    return next((plan for plan in chosen if plan and plan.shared_bytes(limits) + plan.board_bytes <= room), None)


def _ring(limits: Limits, ctas: int, vectors: int, fit: Fit, ring: int) -> ChipPlan | None:
    share = -(-vectors // ctas)
    # A row that fills more than half of the ring leaves too little of it to hide the time until its total is known:
    # softmax of 4 million fp32 elements 79 %, with a tail of 4 tiles in registers 90, of 6 83.
    crowded = 2 * share * limits.inputs > ring * _CHIP_TILE
    threads, tail = limits.chip_full if crowded else (512, 0)
    items = _CHIP_TILE // limits.inputs // threads
    tiles = -(-share // (items * threads))
    # A third of what is left is on its way: 4 million elements of 16 bits want 48 KiB of it (89 %, with 32 KiB 88),
    # rows of 2 MiB rather 64 (93 % for fp32, with 32 89).
    flight = max(2, (ring - tiles) // 3)
    if tiles >= ring - flight + tail:
        return None
    full = max(0, vectors - (ctas - 1) * share) // (items * threads)
    return ChipPlan(fit, limits.inputs, threads, items, ctas, share, ring, flight, tail, full)


@cache
def columns(limits: Limits, outer: int, length: int, inner: int, size: int, alignment: int) -> ColumnPlan:
    """The plan for columns whose tensors all start at a multiple of `alignment` bytes."""
    vec = VECTOR // size
    while inner % vec or alignment % (vec * size):
        vec //= 2
    most = 8 if vec > 1 else 16
    wide = power_above(-(-inner // vec))
    for line, threads in _COLUMN_SHAPES:
        across = max(1, min(32, wide, line // (vec * size)))
        along = threads // across
        # 1024 threads have 64 registers each: too few for two inputs, or for eight columns of 16 bits.
        if line <= limits.line and length <= along * most and (threads <= 512 or (limits.inputs == 1 and vec <= 4)):
            along = min(along, max(32 // across, power_above(-(-length // most))))
            return ColumnPlan(vec, across, along, -(-length // along))
    across = max(1, min(32, wide, 64 // (vec * size)))
    along, items = 512 // across, most // 2
    steps = -(-length // (along * items))
    # Enough CTAs for 8 to an SM of a large chip; each takes 4 steps or more, and a grid has at most 65535 chunks.
    tiles = max(4, steps * outer * -(-inner // (across * vec)) // 1024, -(-steps // 65535))
    chunks = max(2, -(-steps // tiles))
    return ColumnPlan(vec, across, along, items, chunks, -(-steps // chunks))
