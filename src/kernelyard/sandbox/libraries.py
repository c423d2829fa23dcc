"""The vendor's libraries of matrix products and convolutions, begun before anybody's call needs them.

Of a process's first call on an H100 they are most: of KernelBench's 2/70, which multiplies, 80 to 100 of 150 ms, and of
2/74, which convolves, 150 of 200 (2026-11-27).
"""

from contextlib import suppress

import torch

WIDTH = 64


def begin(device: torch.device) -> None:
    """Multiply and convolve a few zeros, where there is a GPU."""
    if device.type != "cuda":
        return
    x = torch.zeros(1, WIDTH, WIDTH, device=device)
    with torch.no_grad(), suppress(RuntimeError):  # whose own call, if it needs what fails here, says so itself
        x[0] @ x[0]
        torch.nn.functional.conv2d(x[None], x.new_zeros(1, 1, 3, 3))
        torch.cuda.synchronize(device)
