"""The torch.compile rung of an operator: a formula in plain torch, fused by Inductor for the exact shapes at hand."""

import os
import shutil
import sys
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch
import torch._functorch.config

from kernelyard.kernels.calls import batching_refusal, call_key

_HAS_COMPILER = any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++")))

# Donated buffers let a backward pass overwrite what a second one (retain_graph) needs. Set for the process, because
# torch 2.11 reads it when the backward is compiled, at its first call.
torch._functorch.config.donated_buffer = False


def compiler_refusal() -> str | None:
    """Why Inductor does not compile a call made here, or None; within another compiled function that one compiles."""
    if not _HAS_COMPILER:
        return "needs a C++ compiler for Inductor"
    return None if torch.compiler.is_compiling() else _switched_off() or batching_refusal()


def _switched_off() -> str | None:
    """Which of torch's switches keeps torch.compile from compiling, or None; most of them run eager torch instead.

    2 us of a call that names this rung. Nothing is imported: what Dynamo's modules hold was set after they were.
    """
    if os.environ.get("TORCHDYNAMO_DISABLE") == "1":
        return "needs torch.compile, which TORCHDYNAMO_DISABLE=1 switches off"
    config, frames = sys.modules.get("torch._dynamo.config"), sys.modules.get("torch._dynamo.eval_frame")
    if config is None and os.environ.get("TORCH_COMPILE_DISABLE") == "1":
        return "needs torch.compile, which TORCH_COMPILE_DISABLE=1 switches off"
    if config is not None and config.disable:
        return "needs torch.compile, which torch._dynamo.config.disable switches off"
    if frames is None:
        return None
    # The other stances run eager torch at the first call, for a shape that is not compiled yet, or always.
    if frames._stance.stance not in ("default", "fail_on_recompile"):
        return f"needs torch.compile's default stance, not {frames._stance.stance!r}"
    if frames._stance.backend not in (None, "inductor"):
        return f"needs Inductor, not {frames._stance.backend!r}, the backend that torch.compile's stance forces"
    return None


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
