"""Powers of two, in which launches are counted: threads, CTAs of a cluster, blocks of Triton."""


def power_above(value: int) -> int:
    """The least power of two that is at least `value`; 1 for what is less."""
    return 1 << max(0, value - 1).bit_length()
