"""torch.compile of torch's own function, as users write it: the compile rung fuses the written-out formula."""

from typing import Any

from kernelyard.kernels.compiled import compiled, compiler_refusal
from kernelyard.ops.softmax import eager


def refusal(*arguments: Any) -> str | None:
    """Why Inductor does not compile this call here, or None; the arguments are those of `eager`."""
    return eager.refusal(*arguments) or compiler_refusal()


softmax = compiled(eager.softmax)
