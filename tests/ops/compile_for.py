"""Compiles every Triton kernel that some calls launch, for a GPU that need not be here; nothing runs.

    python compile_for.py cuda 90 32

Prints how often each kernel was compiled, by operator, as JSON; a kernel that does not compile is a traceback.
"""

import json
import sys
from collections import Counter
from math import prod
from types import SimpleNamespace
from typing import Any

import torch
from plain_calls import cases, plain
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from kernelyard import ops
from kernelyard.core.operator import Backend, Operator
from kernelyard.core.workload import Workload
from kernelyard.judge.prepare import as_tuple, leaves

MOST_ELEMENTS = 1 << 18
LAUNCH = JITFunction.run
PROPERTIES = SimpleNamespace(multi_processor_count=108, shared_memory_per_block_optin=163 << 10)


def some(operator: Operator) -> list[Workload]:
    """A plain call in two dtypes, one along another dim or over images, and one of each length of rows from 1024 on."""
    usual = plain(operator)
    images = [w for w in operator.workloads if w.option("dim", -1) == 1 or w.option("layout", None) == "images"]
    affordable = [w for w in operator.gpu_workloads if 0 < prod(w.shape) <= MOST_ELEMENTS]
    lengths = {w.shape[-1].bit_length(): w for w in affordable if w.shape[-1] >= 1024}
    return [usual, usual.model_copy(update={"dtype": "bfloat16"}), *images[:1], *lengths.values()]


def main(vendor: str, arch: str, warp: str) -> None:
    target = GPUTarget(vendor, int(arch) if arch.isdigit() else arch, int(warp))
    here = {"get_current_target": target, "get_current_device": 0, "get_current_stream": 0}
    driver.set_active(SimpleNamespace(**{name: lambda *_, value=value: value for name, value in here.items()}))
    torch.cuda.get_device_properties = lambda *_: PROPERTIES  # type: ignore[assignment, return-value]
    compiled: Counter[str] = Counter()

    def compile_alone(kernel: Any, *arguments: Any, grid: Any, warmup: bool = False, **options: Any) -> None:
        LAUNCH(kernel, *arguments, grid=grid, warmup=True, **options)
        compiled[kernel.fn.__name__] += 1

    JITFunction.run = compile_alone
    found = {}
    for operator, backend in (case.values for case in cases((Backend.TRITON,))):
        compiled.clear()
        call = getattr(ops.backend_module(operator.name, backend), operator.name)
        for workload in some(operator):
            arguments, wanted = leaves(operator, operator.make_inputs(workload, torch.device("cpu")))
            outputs = as_tuple(call(*arguments))
            torch.autograd.grad(outputs, list(wanted.values()), [torch.ones_like(y) for y in outputs])
        found[operator.name] = dict(compiled)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
