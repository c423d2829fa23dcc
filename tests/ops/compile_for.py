"""Compiles every Triton kernel that some calls launch, for a GPU that need not be here; nothing runs.

    python compile_for.py cuda 90 32

Prints how often each kernel was compiled, by operator, as JSON; a kernel that does not compile is a traceback.
"""

import json
import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any

import torch
from plain_calls import call_some, cases
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from kernelyard import ops
from kernelyard.core.operator import Backend

LAUNCH = JITFunction.run
PROPERTIES = SimpleNamespace(multi_processor_count=108, shared_memory_per_block_optin=163 << 10)


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
        ops.backend_module(operator.name, backend).refusal = lambda *_: None  # for it needs a GPU
        call_some(operator, backend, torch.device("cpu"))
        found[operator.name] = dict(compiled)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
