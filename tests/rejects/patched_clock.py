"""Stops the clocks that the worker reads, and takes its time.

expect: rejected
"""

import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        begin = time.perf_counter_ns()
        time.sleep(0.03)
        y = torch.softmax(x, dim=-1)
        time.perf_counter_ns = lambda: begin + 1000
        torch.cuda.Event.elapsed_time = lambda self, end: 0.001  # type: ignore[method-assign]
        return y
