"""How the matrices are cut into strips of columns, and each strip's rows among the CTAs of a cluster: and why."""

from dataclasses import dataclass

from kernelyard.kernels.nvrtc import Defines
from kernelyard.kernels.plans import VECTOR

FINISHERS = 8
"""Warps that share out the strips when a row's parts are added up."""


@dataclass(frozen=True)
class Limits:
    """What a CTA is, for one direction. Percentages are of the copy bandwidth over the least bytes, in bf16."""

    threads: int
    resident: int
    """CTAs that a multiprocessor runs at once, and few: with 1024 threads to one, rows that lie far apart are read at
    once, which the memory likes less. 2 CTAs of 512 threads: 81 % forward at 16384 x 8192, 512 threads in all: 95."""
    items: int = 4
    """Rows that a thread has on their way at once; forward with 2: 71 % at 16384 x 4096, with 4: 82 (512 threads)."""
    cluster: int = 8
    """Most CTAs of a cluster, as every Hopper has them; 16 make 1 % less to 3 % more."""
    busy: float = 0.6
    """Of the CTAs that could run at once, the share that keeps the memory busy."""


FORWARD = Limits(threads=256, resident=3)
BACKWARD = Limits(threads=128, resident=4)
"""Two streams more, so still shorter CTAs: 90 to 94 %, with 256 threads 87 to 90."""

_ACROSS = (32, 16, 8, 4)
"""Lanes of a row, the widest strip first: 512 bytes of 16 to a lane."""


@dataclass(frozen=True)
class Plan:
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
            ("RESIDENT", self.limits.resident),
            ("ITEMS", self.limits.items),
            ("FINISHERS", FINISHERS),
        )


def vector(width: int, pitches: tuple[int, ...], streams: tuple[tuple[int, int], ...]) -> int:
    """Elements of a vector that fits rows of `width`, `pitches` elements apart, at every (address, element size)."""
    vec = VECTOR // max(size for _, size in streams)
    while any(length % vec for length in (width, *pitches)) or any(at % (vec * size) for at, size in streams):
        vec //= 2
    return vec


def plan(limits: Limits, width: int, vec: int, processors: int, clusters: bool) -> Plan:
    """The widest strips that give nearly as many CTAs as run at once, or else those that give the most."""
    resident = limits.resident * processors
    found = [_cut(limits, width, vec, across, resident, clusters) for across in _ACROSS]
    enough = (each for each in found if each.strips * each.cluster >= limits.busy * resident)
    return next(enough, max(found, key=lambda each: min(each.strips * each.cluster, resident)))


def _cut(limits: Limits, width: int, vec: int, across: int, resident: int, clusters: bool) -> Plan:
    strips = max(1, -(-width // (across * vec)))
    cluster = 1
    while clusters and cluster < limits.cluster and 2 * cluster * strips <= resident:
        cluster *= 2
    return Plan(limits, vec, across, cluster, strips)
