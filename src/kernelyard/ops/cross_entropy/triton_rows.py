"""What the Triton kernels share: a row's target, its loss, and the numbers that its gradient is made of."""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def aims(p_target, i_row, M, N, ignored):
    """The rows' targets, which rows count, and which targets are classes."""
    b_target = tl.load(p_target + i_row, mask=i_row < M, other=0).to(tl.int64)
    m_counts = (i_row < M) & (b_target != ignored)
    return b_target, m_counts, (b_target >= 0) & (b_target < N)


@triton.jit
def losses(b_max, b_sum, b_logit, b_below, m_counts, m_known, N, smoothing, z, SMOOTH: tl.constexpr, Z: tl.constexpr):
    """Losses of rows from their maximum, sum of exp(x - maximum) and mean of maximum - x, in fp32."""
    b_log = tl.log(b_sum)
    b_loss = b_log + (b_max - b_logit)
    if SMOOTH:
        b_loss = (1 - smoothing) * b_loss + smoothing * (b_log + b_below / N)
    if Z:
        b_loss += z * (b_max + b_log) * (b_max + b_log)
    return tl.where(m_counts, tl.where(m_known, b_loss, float("nan")), 0)


@triton.jit
def factors(b_max, b_sum, m_counts, m_known, N, scale, smoothing, z, Z: tl.constexpr):
    """A gradient is exp(x - maximum) * factor - share, and less by `hit` at the target."""
    b_factor = scale / b_sum
    if Z:
        b_factor *= 1 + 2 * z * (b_max + tl.log(b_sum))
    b_factor = tl.where(m_counts, tl.where(m_known, b_factor, float("nan")), 0)
    return b_factor, tl.where(m_counts, scale * smoothing / N, 0), tl.where(m_counts, scale * (1 - smoothing), 0)
