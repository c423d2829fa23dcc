"""The TorchScript rung: the written-out formula, scripted. Deprecated in torch; kept as a step of the ladder."""

from kernelyard.kernels.scripted import script_refusal, scripted
from kernelyard.kernels.support import dtype_refusal
from kernelyard.ops.cross_entropy import formula
from kernelyard.ops.cross_entropy.targets import target_refusal

cross_entropy = scripted(formula.cross_entropy)


def refusal(input, target, ignore_index, reduction, label_smoothing, z_loss) -> str | None:
    """Why this backend does not take the input, or None."""
    return dtype_refusal(input) or target_refusal(input, target) or script_refusal()
