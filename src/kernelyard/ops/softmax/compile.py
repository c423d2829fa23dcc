"""The torch.compile rung: the written-out formula, fused by Inductor for the exact shape called with."""

import os
import shutil

import torch
import torch._functorch.config

from kernelyard.ops.softmax.derivative import dtype_refusal

_HAS_COMPILER = any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++")))
_TRACED: set[tuple[object, ...]] = set()


def _formula(x: torch.Tensor, dim: int) -> torch.Tensor:
    if x.numel() == 0:
        return x.clone()
    wide = x.float()
    exponentials = torch.exp(wide - torch.amax(wide.detach(), dim, keepdim=True))
    return (exponentials / exponentials.sum(dim, keepdim=True)).to(x.dtype)


# Donated buffers let a backward pass overwrite what a second one (retain_graph) needs. Set for the process, because
# torch 2.11 reads it when the backward is compiled, at its first call.
torch._functorch.config.donated_buffer = False

# fullgraph turns "too many shapes, running eager instead" into an error: this rung never times eager torch.
_compiled = torch.compile(_formula, dynamic=False, fullgraph=True)


def refusal(x: torch.Tensor, dim: int) -> str | None:
    """Why this backend does not take the input, or None."""
    if (reason := dtype_refusal(x)) is not None:
        return reason
    if not _HAS_COMPILER:
        return "needs a C++ compiler for Inductor"
    return None


def softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Softmax of `x` along `dim`, computed in float32 and returned in x's dtype; any shape."""
    if torch.compiler.is_compiling():
        return _formula(x, dim)
    key = (x.shape, x.stride(), x.dtype, x.device, x.requires_grad, torch.is_grad_enabled(), dim)
    if key in _TRACED:
        return _compiled(x, dim)
    # One entry per shape is wanted here; the limit of 8 is meant for shapes that change by accident.
    with torch._dynamo.config.patch(recompile_limit=4096, accumulated_recompile_limit=4096):
        result = _compiled(x, dim)
    _TRACED.add(key)
    return result
