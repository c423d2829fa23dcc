"""How the matrices are cut for each kernel, into strips of columns or into rows: and why.

Percentages are of a copy of the least bytes on an H100, in bf16 where no dtype is named.
"""

from dataclasses import dataclass
from typing import NamedTuple

from kernelyard.kernels.nvrtc import Defines
from kernelyard.kernels.plans import VECTOR
from kernelyard.kernels.powers import power_above


class Chip(NamedTuple):
    """What of a device the plans depend on."""

    processors: int
    shared: int
    """Bytes of shared memory that one CTA may have."""
    clusters: bool
    copies: bool
    """Whether a thread's copies into shared memory are asynchronous (cp.async)."""


@dataclass(frozen=True)
class Limits:
    """What a CTA of a kernel that works on strips of columns is."""

    threads: int
    resident: int
    """CTAs that a multiprocessor runs at once."""
    cluster: int
    """Most CTAs of a cluster."""
    across: int = 32
    """Most lanes of a row, each with 16 bytes."""
    busy: float = 0.6
    """Of the CTAs that could run at once, the share that keeps the memory busy."""


COLUMNS = Limits(threads=512, resident=1, cluster=4, across=16)
LONG_COLUMNS = Limits(threads=512, resident=1, cluster=2)
LONG_COLUMN_ROW = 32 << 10
"""Bytes of a row from which a strip has 512 bytes. Of shorter rows it has 256, which leaves clusters of 4 and 2: 96.4
us at 8192 x 8192, with 512 bytes and 4 CTAs 97.8; at 16384 x 4096 96.7, with 128 bytes 100.7. Clusters of 8 leave 12 of
132 multiprocessors idle and give 8 of them two CTAs."""
COLUMN_STAGES = 5
"""40 KB on their way from a multiprocessor; 64 KB are no faster."""
AHEAD = 12
"""Steps of the column sums, of 1 MB over the chip, that are left when the next kernel may start: it takes 3 us."""
STRIPS = Limits(threads=128, resident=4, cluster=8)
"""One stream is read and two are written: with 256 threads 85 % at 2048 x 4096, with 128 90."""
WIDE_STRIPS = Limits(threads=256, resident=2, cluster=2)
WIDE_ROW = 16 << 10
"""Bytes of a row from which a cluster of 2 still has strips of a line: 95 and 101 % at 1k and 2k x 4096 in fp32, where
STRIPS reach 90 and 98. In rows half as long its strips are half a line: 86 % at 2k, 90."""
STRIP_ITEMS = 4
"""Rows that a thread has on their way at once."""
DOT_THREADS = 512
DOT_CHUNKS = 4
"""Vectors of a row that a thread has, where a row needs no more: with more there are fewer parts to add up."""
DOT_ROWS = 2
"""Rows between two meetings of a CTA."""
DOT_REGISTERS = 32
"""Most floats of the sums in a thread's registers."""
DOT_SHARE = 0.565
"""Of a CTA's shared memory, for the rows that are on their way: 128 KB of 227. More than half, so that no
multiprocessor gets two of these CTAs and another none: 2.5 to 5 us at 4096 and 16384 rows."""
WRITERS = Limits(threads=256, resident=4, cluster=1)
PAIR_BYTES = 128 << 20
"""Bytes of x, dx and dweight from which the backward is two kernels, one that reads and one that writes: 98 to 101 % at
16k, where one kernel that does both reaches 90. Less is too short for the second kernel's start: 80 % at 2k, 90."""

_ACROSS = (32, 16, 8, 4)
"""Lanes of a row, the widest strip first."""


@dataclass(frozen=True)
class Cut:
    """`strips` of `across` * `vec` columns, each of a cluster of CTAs."""

    limits: Limits
    vec: int
    across: int
    cluster: int
    strips: int

    @property
    def macros(self) -> Defines:
        return (
            ("VEC", self.vec),
            ("ACROSS", self.across),
            ("CLUSTER", self.cluster),
            ("THREADS", self.limits.threads),
        )


def vector(width: int, pitches: tuple[int, ...], streams: tuple[tuple[int, int], ...]) -> int:
    """Elements of a vector that fits rows of `width`, `pitches` elements apart, at every (address, element size)."""
    vec = VECTOR // max(size for _, size in streams)
    while any(length % vec for length in (width, *pitches)) or any(at % (vec * size) for at, size in streams):
        vec //= 2
    return vec


def cut(limits: Limits, width: int, vec: int, chip: Chip) -> Cut:
    """The widest strips that give nearly as many CTAs as run at once, or else those that give the most."""
    resident = limits.resident * chip.processors
    found = [_cut(limits, width, vec, across, resident, chip.clusters) for across in _ACROSS if across <= limits.across]
    enough = (each for each in found if each.strips * each.cluster >= limits.busy * resident)
    return next(enough, max(found, key=lambda each: min(each.strips * each.cluster, resident)))


def column_limits(row_bytes: int, whole: bool) -> Limits:
    """Those of the column sums; `whole`: vectors have 16 bytes, so that few lanes have enough of a row."""
    return COLUMNS if whole and row_bytes < LONG_COLUMN_ROW else LONG_COLUMNS


def strip_limits(row_bytes: int) -> Limits:
    """Those of the backward in one kernel."""
    return WIDE_STRIPS if row_bytes >= WIDE_ROW else STRIPS


def _cut(limits: Limits, width: int, vec: int, across: int, resident: int, clusters: bool) -> Cut:
    strips = max(1, -(-width // (across * vec)))
    cluster = 1
    while clusters and cluster < limits.cluster and 2 * cluster * strips <= resident:
        cluster *= 2
    return Cut(limits, vec, across, cluster, strips)


def stages(vec: int, size: int, chip: Chip, most: int) -> int:
    """How deep a ring in shared memory is: 0 where vectors have less than 16 bytes or copies are not asynchronous."""
    return most if chip.copies and vec * size == VECTOR else 0


@dataclass(frozen=True)
class Dots:
    """`group` lanes to a row, each with `chunks` vectors of it, and `stages` rows on their way."""

    vec: int
    group: int
    chunks: int
    stages: int

    @property
    def macros(self) -> Defines:
        return (
            ("VEC", self.vec),
            ("GROUP", self.group),
            ("CHUNKS", self.chunks),
            ("STAGES", self.stages),
            ("THREADS", DOT_THREADS),
            ("ROWS", DOT_ROWS),
        )

    @property
    def shared_bytes(self) -> int:
        return self.stages * self.chunks * DOT_THREADS * VECTOR

    def grid(self, rows: int, processors: int) -> int:
        """CTAs that share out the rows."""
        resident = processors if self.stages else 2 * processors
        return min(resident, -(-rows * self.group // DOT_THREADS))


def dots(rows: int, width: int, vec: int, size: int, chip: Chip) -> Dots:
    """As few lanes as have a row of DOT_CHUNKS vectors each, or as many as have one each where rows are few."""
    lanes = max(1, -(-width // vec))
    group = min(DOT_THREADS, max(4, power_above(-(-lanes // DOT_CHUNKS))))
    if rows <= chip.processors:
        group = min(DOT_THREADS, max(group, power_above(lanes)))
    chunks = -(-lanes // group)
    deep = int(DOT_SHARE * chip.shared) // (chunks * DOT_THREADS * VECTOR) if chunks * vec <= DOT_REGISTERS else 0
    return Dots(vec, group, chunks, stages(vec, size, chip, deep if deep > 1 else 0))


@dataclass(frozen=True)
class Panels:
    """`across` lanes to a row of `panels` times as many vectors; `ctas` of them share out the rows."""

    vec: int
    across: int
    panels: int
    ctas: int

    @property
    def macros(self) -> Defines:
        return (
            ("VEC", self.vec),
            ("ACROSS", self.across),
            ("THREADS", WRITERS.threads),
            ("RESIDENT", WRITERS.resident),
        )


def panels(width: int, vec: int, chip: Chip) -> Panels:
    """As many CTAs as run at once, each of which has the same columns in all its rows."""
    lanes = max(1, -(-width // vec))
    across = min(WRITERS.threads, power_above(lanes))
    count = -(-lanes // across)
    return Panels(vec, across, count, count * max(1, WRITERS.resident * chip.processors // count))
