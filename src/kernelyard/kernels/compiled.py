"""The torch.compile rung of an operator: a formula in plain torch, fused by Inductor for the exact shapes at hand."""

import os
import shutil
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch
import torch._functorch.config

from kernelyard.kernels.calls import call_key

_HAS_COMPILER = any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++")))

# Donated buffers let a backward pass overwrite what a second one (retain_graph) needs. Set for the process, because
# torch 2.11 reads it when the backward is compiled, at its first call.
torch._functorch.config.donated_buffer = False


def compiler_refusal() -> str | None:
    """Why Inductor cannot compile here, or None."""
    return None if _HAS_COMPILER else "needs a C++ compiler for Inductor"


def compiled(formula: Callable[..., Any]) -> Callable[..., Any]:
    """`formula` through torch.compile with static shapes; within another compiled function, the formula itself."""
    # At the first call: torch.compile imports Dynamo, 1.2 of the 4.1 s in which a wrong request was refused.
    # fullgraph turns "too many shapes, running eager instead" into an error: this rung never times eager torch.
    fused = cache(lambda: torch.compile(formula, dynamic=False, fullgraph=True))
    traced: set[tuple[Any, ...]] = set()

    @wraps(formula)
    def call(*arguments: Any) -> Any:
        if torch.compiler.is_compiling():
            return formula(*arguments)
        key = call_key(arguments)
        if key in traced:
            try:
                return fused()(*arguments)
            except torch._dynamo.exc.FailOnRecompileLimitHit:
                # Dynamo looks at torch's global state too: determinism, the default dtype. It changed; compile again.
                pass
        # One entry per shape is wanted here; the limit of 8 is meant for shapes that change by accident.
        with torch._dynamo.config.patch(recompile_limit=4096, accumulated_recompile_limit=4096):
            result = fused()(*arguments)
        traced.add(key)
        return result

    return call
