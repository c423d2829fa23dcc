"""How the backward kernels of the norms are launched, and why. Percentages are of a copy of the least bytes."""

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from kernelyard.kernels.nvrtc import Defines
from kernelyard.kernels.plans import LARGEST_CLUSTER, VECTOR
from kernelyard.kernels.powers import power_above

SHARED = 228 << 10
"""Bytes of shared memory that the CTAs of a multiprocessor have, of which each takes 1 KiB more than it asks for."""


class Streams(NamedTuple):
    """Bytes of an element of what the pipeline reads; no weight, no total: 0."""

    dy: int
    x: int
    total: int
    weight: int


@dataclass(frozen=True)
class RowsPlan:
    """One read: what the macros of backward_rows.cu mean. A CTA has `share` columns of its rows."""

    vec: int
    threads: int
    teams: int
    items: int
    cluster: int
    share: int
    stages: int
    held: bool
    resident: int
    """CTAs of a multiprocessor that registers and shared memory leave room for."""
    chunks: int = 1
    packed: bool = True
    kept: bool = False
    total_ahead: bool = False

    @property
    def ahead(self) -> bool:
        """Whether copies bring a row's statistics. In large clusters a load into registers holds up what is waited for
        together with it: layer_norm bf16 at 64k 92 %, loaded 89; at 16k 93.4, loaded 94.0, at 256k 87.3, 88.6."""
        return self.kept and self.cluster > 2

    @property
    def macros(self) -> Defines:
        return (
            ("VEC", self.vec),
            ("THREADS", self.threads),
            ("TEAMS", self.teams),
            ("ITEMS", self.items),
            ("CLUSTER", self.cluster),
            ("STAGES", self.stages),
            ("CHUNKS", self.chunks),
            ("HELD", int(self.held)),
            ("PACKED", int(self.packed)),
            ("KEPT", int(self.kept)),
            ("AHEAD", int(self.ahead)),
            ("TOTAL_AHEAD", int(self.total_ahead)),
            ("RESIDENT", self.resident),
        )

    @property
    def rows(self) -> int:
        """Rows that a team has side by side."""
        return max(1, 32 // self.threads)

    @property
    def block(self) -> int:
        return max(32, self.threads) * self.teams

    def room(self, size: int) -> int:
        """Bytes of a slot for elements of `size` bytes; of one row where rows lie apart; 16 more, for any start."""
        columns = min(self.share, self.threads * self.vec * self.items // self.chunks)
        return _multiple(columns * (self.rows if self.packed else 1) * size, VECTOR) + VECTOR

    def shared_bytes(self, streams: Streams) -> int:
        """Of a CTA: the weights that are not in registers, and the rings of its teams, through which their sums of
        dweight meet in the end."""
        slot = (self.room(streams.dy) + self.room(streams.x)) * (1 if self.packed else self.rows)
        rings = max(self.teams * self.stages * slot, self.teams * self.share * 4)
        return rings + (0 if self.kept else _multiple(self.share * streams.weight, VECTOR))

    def fits(self, streams: Streams) -> bool:
        """Whether shared memory holds the resident CTAs, with their barriers and the parts of sums that meet."""
        parts = self.teams * 2 * 8 * (self.block // 32 // self.teams * self.cluster)
        barriers = self.teams * 8 * (self.stages + 2)
        statistics = 4 * 8 * (self.block // 32) * self.ahead
        return self.shared_bytes(streams) + parts + barriers + statistics + 1024 <= SHARED // self.resident

    def deepest(self, streams: Streams) -> "RowsPlan | None":
        """With no more stages than shared memory holds, or None if it does not hold a row."""
        for stages in range(self.stages, self.chunks - 1, -1):
            plan = replace(self, stages=stages)
            if plan.fits(streams):
                return plan
        return None


@dataclass(frozen=True)
class SplitPlan:
    """Two reads: `chunks` CTAs to a row or column for its sums, then `parts` CTAs to a tile of elements."""

    vec: int
    threads: int
    rows: bool
    chunks: int
    parts: int

    @property
    def macros(self) -> Defines:
        return (("VEC", self.vec), ("THREADS", self.threads))


@dataclass(frozen=True)
class FinishPlan:
    """`across` vectors of `vec` columns to a CTA, `along` threads to a column."""

    across: int
    along: int
    vec: int

    @property
    def macros(self) -> Defines:
        return (("VEC", self.vec), ("ACROSS", self.across), ("ALONG", self.along))

    @property
    def columns(self) -> int:
        return self.across * self.vec


@cache
def finish(parts: int, length: int) -> FinishPlan:
    """The plan for the sum of `parts` rows of `length` floats: a thread adds up about 8 vectors, and a CTA has 256
    threads or more. Short rows go column by column, for more CTAs."""
    along = min(32, power_above(-(-parts // 8)))
    return FinishPlan(max(32, 256 // along), along, 4 if length >= 8192 and length % 4 == 0 else 1)


def rows(
    length: int,
    vec: int,
    streams: Streams,
    *,
    threads: int,
    cluster: int = 1,
    teams: int = 1,
    stages: int = 4,
    held: bool = True,
    resident: int = 1,
    chunks: int = 1,
    packed: bool = True,
    total_ahead: bool = False,
) -> RowsPlan | None:
    """The plan with the stages that shared memory holds, or None if it does not hold a row."""
    share = _multiple(-(-length // cluster), 2 * VECTOR) if cluster > 1 else length
    items = _multiple(-(-share // (threads * vec)), chunks)
    # Weights in registers gain 1 % at N = 1024, 0.3 at 16384 and up to 3 at 65536 (bf16). More than 64 bytes spill:
    # bf16 at 262144 96.5 % beside a total, from shared memory 94.7, but fp32 81 for 95.
    kept = vec * streams.weight == VECTOR and items * VECTOR <= 64
    plan = RowsPlan(
        vec, threads, teams, items, cluster, share, stages, held, resident, chunks, packed, kept, total_ahead
    )
    return plan.deepest(streams)


_CHUNKS_OF_16_BITS = {2: (2, 4), 4: (2, 6), 8: (2, 8), 16: (1, 4)}
"""By cluster: chunks and most stages. Layer norm at 16k 94 % (2 and 6: 92.5), 32k 92.5 (1 and 4: 87), 64k 91 (2 and 4:
88), 128k 85 (2 and 4: 75)."""
_CHUNKS_BESIDE_A_TOTAL = (2, 6)
"""The same where a total goes straight to registers: 96 to 97 % from 16k to 128k, with (1, 4) 92 at 128k."""


@cache
def pipeline(length: int, vec: int, streams: Streams, packed: bool) -> RowsPlan | None:
    """The plan for rows of `length` elements, or None for those that no cluster holds.

    One CTA of 512 threads to a multiprocessor, 16 columns to a thread: with fewer, larger CTAs less is left to add up
    (N = 1024 in bf16: 132 CTAs 94 %, 525 CTAs 92). Two stages suffice for whole rows; a third cost up to 0.9 %.
    """
    total = streams.total > 0
    if length <= 8192:
        threads = power_above(-(-length // 16))
        teams = 512 // max(32, threads)
        whole = rows(
            length,
            vec,
            streams,
            threads=threads,
            teams=teams,
            # fp32 at 8k beside a total: 97.9 %, with two stages 97.0.
            stages=3 if total else 2,
            packed=packed or threads >= 32,
            # 97.4 % for 97.1 at 4k; in fp32 97.3 for 98.2 at 2k.
            total_ahead=streams.total == 2,
        )
        if whole and whole.stages > 1:
            return whole
    if length > 32 * 512 * LARGEST_CLUSTER:
        return None
    columns = 16 if length <= 131072 else 32
    cluster = max(2, power_above(-(-length // (columns * 512))))
    if columns == 32:
        # 88 to 91 %; whole rows to a slot 85 in bf16, and in fp32 no two of them fit.
        chunks, stages = min(8, columns // vec), 12
    elif max(streams.x, streams.dy) == 2:
        chunks, stages = _CHUNKS_BESIDE_A_TOTAL if total else _CHUNKS_OF_16_BITS[cluster]
    else:
        # 91 to 94 %, beside a total 95 to 98; with half rows 90 to 94. At 16384 without one 94.5, with 8 stages 93.4.
        chunks, stages = 4, 12 if cluster == 2 and not total else 8
    return rows(
        length,
        vec,
        streams,
        threads=512,
        cluster=cluster,
        held=False,
        chunks=chunks,
        stages=stages,
        # fp32 at 262144: 95.0 and 95.4 % for 94.5; bf16 95.2 for 96.5.
        total_ahead=columns == 32 and streams.total == 4,
    )


@cache
def split_rows(rows: int, length: int, vec: int, processors: int) -> SplitPlan:
    """The plan for rows of `length` elements, `vec` of which are loaded at once."""
    threads = min(256, max(32, power_above(-(-length // vec))))
    tiles = -(-length // (threads * vec))
    # About 8 CTAs to a processor in both kernels; no more chunks than tiles, of which each thread takes 4 or more.
    chunks = max(1, min(-(-tiles // 4), -(-8 * processors // rows)))
    parts = max(1, min(-(-rows // 4), -(-8 * processors // tiles)))
    return SplitPlan(vec, threads, True, chunks, parts)


@cache
def split_columns(outer: int, length: int, inner: int, vec: int, processors: int) -> SplitPlan:
    """The plan for `outer` times `inner` columns of `length` elements."""
    tiles = -(-inner // (32 * vec))
    chunks = max(1, min(-(-length // 32), -(-8 * processors // (outer * tiles))))
    parts = max(1, min(outer * tiles, -(-8 * processors // -(-length // 32))))
    return SplitPlan(vec, 256, False, chunks, parts)


def _multiple(value: int, of: int) -> int:
    return -(-value // of) * of
