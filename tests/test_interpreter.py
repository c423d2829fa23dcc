"""The interpreter's bf16 is the GPU's bf16."""

import numpy as np
import pytest
import torch

from kernelyard.core.interpreter import interpreting, nearest_bfloat16, round_to_nearest


def test_bits_are_torchs() -> None:
    special = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), 3.4e38, -3.4e38, 1e-45, 1.00390625, 1.01171875])
    values = torch.cat([torch.randn(100_000, generator=torch.Generator().manual_seed(0)).exp2(), special])
    expected = values.bfloat16().view(torch.uint16).numpy()
    np.testing.assert_array_equal(nearest_bfloat16(values.numpy()), expected)
    assert torch.from_numpy(nearest_bfloat16(np.array([np.nan], np.float32))).view(torch.bfloat16).isnan().all()


@pytest.mark.skipif(not interpreting(), reason="Triton compiles here")
def test_a_kernel_in_the_interpreter_rounds_to_nearest() -> None:
    import triton
    import triton.language as tl

    round_to_nearest()

    @triton.jit
    def narrow_kernel(x, y, BLOCK: tl.constexpr):
        o = tl.arange(0, BLOCK)
        tl.store(y + o, tl.load(x + o).to(tl.bfloat16))

    x = torch.randn(256, generator=torch.Generator().manual_seed(0))
    y = torch.empty(256, dtype=torch.bfloat16)
    narrow_kernel[(1,)](x, y, BLOCK=256)
    assert torch.equal(y, x.bfloat16())
