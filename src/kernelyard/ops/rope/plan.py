"""How the CUDA kernel is launched: what a thread, a CTA and the grid take of the heads and tokens."""

from dataclasses import dataclass
from functools import cache

from kernelyard.kernels.nvrtc import Defines

THREADS = 256
"""Threads of a CTA, as near as heads and units allow."""
MOST_THREADS = 640
"""32 and 8 heads of 128 float32, one each to a slot."""
HEADS_OF_WIDE_TABLES = 2
"""Heads of a thread where a table's elements are wider than q's, so that a vector's cosines are loaded once for both:
94.6 % of the copy, one head 92.8. Where they are not, one head is best: 97.6 %, two 97.0 (T = 4096, bf16)."""
TABLE_BYTES = 1 << 20
"""Of cos, and of sin, that a chunk of tokens reads again for other heads and batches, from L2. (B, H, T, D) in memory,
T = 65536: 97.2 %; 4 MiB: 86.9; all of it: 52.7. In one order for all lengths, batches next to each other, far streams
cost 4 % at T = 1024."""


@dataclass(frozen=True)
class Plan:
    """The launch of one layout; rope.cu says what the numbers are."""

    vec: int
    units: int
    slots: int
    tokens: int
    items: int
    heads_first: bool

    @property
    def macros(self) -> Defines:
        return (
            ("VEC", self.vec),
            ("UNITS", self.units),
            ("SLOTS", self.slots),
            ("TOKENS", self.tokens),
            ("ITEMS", self.items),
            ("HEADS_FIRST", int(self.heads_first)),
        )

    @property
    def threads(self) -> int:
        return self.units * self.slots * self.tokens

    def groups(self, heads: int) -> int:
        """CTAs that the heads of a token are shared out to."""
        return -(-heads // (self.slots * self.items))

    def tiles(self, tokens: int, token_bytes: int) -> int:
        """CTAs of tokens in a chunk, where a row of a table has `token_bytes`."""
        whole = -(-tokens // self.tokens)
        return max(1, min(whole, TABLE_BYTES // max(token_bytes * self.tokens, 1)))


@cache
def plan(vec: int, width: int, heads: int, tokens: int, by_token: bool, wide_table: bool) -> Plan:
    """For heads of `width` elements in vectors of `vec`; `by_token` where the heads of a token are neighbours."""
    units = width // (2 * vec)
    together = by_token or tokens == 1
    items = HEADS_OF_WIDE_TABLES if together and wide_table and heads > 1 else 1
    slots = 1
    if together:
        slots = -(-heads // items)
        ctas = -(-slots * units // max(MOST_THREADS, units))
        slots = -(-slots // ctas)
    side_by_side = 1
    while 2 * side_by_side * slots * units <= THREADS and side_by_side < tokens:
        side_by_side *= 2
    return Plan(vec, units, slots, side_by_side, items, together)
