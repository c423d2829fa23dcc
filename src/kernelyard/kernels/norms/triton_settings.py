"""How the Triton kernels of the norms are launched, with the measured reason for every threshold."""

from dataclasses import dataclass
from functools import cache

import torch

from kernelyard.core.interpreter import interpreting
from kernelyard.kernels.layout import Rows
from kernelyard.kernels.powers import power_above


@dataclass(frozen=True)
class Settings:
    """Percentages are of the copy bandwidth on an H100, at 2^27 elements of bf16 where nothing else is said."""

    forward_elements: int = 32768
    """Longest row that the forward holds in one program's registers: 91 % for layer norm, in a loop 77."""
    backward_elements: int = 16384
    """Longest row that the backward holds, beside the sum of its weight's gradient, spilling a little: rms_norm 62 %,
    with a residual 71 to 75; in two reads 57 and 65."""
    centred_backward_elements: int = 8192
    """With a mean and the sum of the bias's gradient: 95 %; at 16384 it spills, 41 % against 57 in two reads."""
    column_elements: int = 16384
    """Largest block of columns held."""
    loop_block: int = 8192
    """Of a step along a longer row: 77 % at 65536 and 66 at 262144; 16384 elements 70 and 62. Prefetching the next
    step costs: 44 to 72."""
    loop_block_of_two: int = 16384
    """With a residual, whose total is read back: 95 and 80 %; 8192 elements 85 and 78."""
    loop_warps: int = 32
    few_rows: int = 64
    """Fewer long rows than this leave the chip idle with a program each: they are split over programs."""
    split_block: int = 4096
    split_warps: int = 8
    split_bytes: int = 12 << 20
    """Bytes of a batch of split rows: what the first kernel reads, the second finds in L2."""
    few_columns: int = 64
    """Fewer blocks than this, of columns too long to hold, leave the chip idle: they are turned into rows."""
    sum_block: int = 2048
    """Columns of one program of the backward of long rows: 57.4 %, of 4096 56 to 57, of 8192 51."""
    sum_warps: int = 4
    sum_stages: int = 2
    add_rows: int = 32
    """Parts of the weight's gradient that a program of the last kernel adds at a time, by `add_block` columns."""
    add_block: int = 64
    add_warps: int = 4


SETTINGS = Settings()


@dataclass(frozen=True)
class Blocks:
    """A program's tile: `lines` rows or columns of `length` elements each, and its warps."""

    lines: int
    length: int
    warps: int


def forward_blocks(view: Rows, size: int) -> Blocks | None:
    """The tile that holds whole lines of elements of `size` bytes, or None where they are too long.

    4096 elements to 4 warps: 99 to 100 % from 128 to 2048 elements a row, 93 at 512 with half of that. At 16384 fp32
    wants 32 warps (layer norm 92 %, with 16 89), bf16 16 (99 against 76).
    """
    if view.inner > 1:
        return column_blocks(view, 2048)
    length = power_above(view.length)
    if length > SETTINGS.forward_elements:
        return None
    if length <= 2048:
        return Blocks(min(4096 // length, 128), length, 4)
    if length == 4096:
        return Blocks(1, length, 8)
    return Blocks(1, length, 32 if length * size > 32768 else 16)


@dataclass(frozen=True)
class Walk(Blocks):
    """A tile of the backward, and how programs walk from one to the next."""

    programs: int
    """Of one multiprocessor at a time. Twice as many as fit wait for the others: 1024 elements, 64 % for 92."""
    stages: int
    """Steps that are on their way at once, the one at work included: 3 or 4 bring 93 to 96 %, 2 no more than 1, 80 to
    88."""


def backward_walk(view: Rows, *, centred: bool) -> Walk | None:
    """The tile that holds whole lines of both inputs and the sums of dweight and dbias, or None."""
    if view.inner > 1:
        blocks = column_blocks(view, 1024)
        if blocks is None:
            return None
        return Walk(blocks.lines, blocks.length, blocks.warps, max(1, 16 // blocks.warps), 2)
    length = power_above(view.length)
    if length > (SETTINGS.centred_backward_elements if centred else SETTINGS.backward_elements):
        return None
    if length <= 256:
        # 91 % at 128; with 4 warps and as many lines 50.
        return Walk(min(2048 // length, 128), length, 8, 2, 3)
    if length <= 512:
        return Walk(4, length, 4, 4, 3)
    if length <= 2048:
        return Walk(1, length, length // 256, 4096 // length, 4)
    if length <= 4096:
        return Walk(1, length, 8, 2, 3)
    return Walk(1, length, 16, 1, 3) if length <= 8192 else Walk(1, length, 32, 1, 1)


def column_blocks(view: Rows, elements: int) -> Blocks | None:
    """64 columns side by side, at least 16 where there are as many, `elements` of them to a warp; or None where so
    many are too long to hold. Columns of 64: 93 % with 2 warps, with 4 85.
    """
    length = power_above(view.length)
    across = min(power_above(view.inner), 64)
    while across > 16 and length * across > SETTINGS.column_elements:
        across //= 2
    if length * across > SETTINGS.column_elements:
        return None
    return Blocks(across, length, max(1, min(16, length * across // elements)))


def loop_blocks(view: Rows, *, residual: bool) -> Blocks:
    """The tile of one step along lines that are too long to hold."""
    if view.inner == 1:
        block = SETTINGS.loop_block_of_two if residual else SETTINGS.loop_block
        return Blocks(1, block, SETTINGS.loop_warps)
    across = min(power_above(view.inner), 64)
    length = max(1, SETTINGS.column_elements // 4 // across)
    return Blocks(across, length, max(1, min(16, length * across // 1024)))


def split_blocks(length: int, size: int) -> tuple[int, int, int]:
    """Programs of a row, blocks of a program, and rows of a batch for split rows."""
    blocks = -(-length // SETTINGS.split_block)
    tiles = -(-blocks // 1024)
    return -(-blocks // tiles), tiles, max(1, SETTINGS.split_bytes // (length * size))


def long_groups(blocks: int, rows: int, device: torch.device) -> int:
    """Programs side by side over the rows of one block of columns, so that all blocks' together fill the chip."""
    resident = max(1, 2048 // (32 * SETTINGS.sum_warps) // 2)
    return max(1, min(rows, resident * processors(device) // blocks))


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors of the device; 2 for the interpreter, so that every program takes several steps."""
    return 2 if interpreting() else torch.cuda.get_device_properties(device).multi_processor_count
