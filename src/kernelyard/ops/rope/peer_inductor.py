"""torch.compile of the lines of the eager rung, as users write them: the compile rung fuses the formula in float32."""

from typing import Any

from kernelyard.kernels.compiled import compiled, compiler_refusal
from kernelyard.ops.rope import eager


def refusal(*arguments: Any) -> str | None:
    """Why Inductor does not compile this call here, or None; the arguments are those of `eager`."""
    return eager.refusal(*arguments) or compiler_refusal()


rope = compiled(eager.rope)
