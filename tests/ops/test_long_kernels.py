"""What runs for long rows and columns alone: under upstream gradients that lie anyhow, and in CUDA graphs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from plain_calls import kernel, replays

from kernelyard import ops
from kernelyard.core.operator import Backend, Operator
from kernelyard.core.workload import Workload
from kernelyard.judge.prepare import leaves
from kernelyard.judge.prove import Answers, prove
from kernelyard.kernels.counters import counts
from kernelyard.suites.library import implementation


class Long(NamedTuple):
    """A call in bfloat16, and kernels that it launches on an H100, forward and backward, without the family's name."""

    shape: tuple[int, ...]
    options: dict[str, Any]
    cuda: str
    triton: str


NORMS = [
    Long((64, 40_000), {}, "staged_forward rows_backward", "looped_forward long_backward"),
    Long((3, 2**21), {}, "chip_forward split_rows_apply_backward", "split_forward long_backward"),
    Long((2, 17_000_000), {}, "split_write_forward split_rows_apply_backward", "split_forward long_backward"),
    Long((64, 1100, 24), {"dim": 1}, "columns_forward columns_held_backward", "looped_forward held_backward"),
    Long((3, 9001, 40), {"dim": 1}, "columns_write_forward split_columns_apply_backward", "held_forward add_up"),
]
EACH_ROW = {"reduction": "none"}
EACH_PIXEL = {"reduction": "none", "layout": "images"}
LONG = {
    "softmax": [
        Long((64, 40_000), {}, "staged_forward staged_backward", "long_forward long_backward"),
        Long((3, 2**21), {}, "chip_forward chip_backward", "split_forward split_backward"),
        Long((2, 17_000_000), {}, "split_write_forward split_write_backward", "split_forward split_backward"),
        Long((64, 1100, 24), {"dim": 1}, "columns_forward columns_backward", "columns_forward columns_backward"),
        # Triton makes rows of columns that are long and few.
        Long((3, 9001, 40), {"dim": 1}, "columns_write_forward columns_write_backward", "rows_forward rows_backward"),
    ],
    "layer_norm": NORMS,
    "rms_norm": NORMS,
    "fused_add_rms_norm": [case for case in NORMS if "dim" not in case.options],
    "cross_entropy": [
        Long((64, 40_000), EACH_ROW, "stream_forward totals_join gradient_backward", "rows_forward gradient"),
        Long((3, 2**21), EACH_ROW, "stream_forward totals_join gradient_backward", "long_forward gradient"),
        Long((2, 64, 64, 150), EACH_PIXEL, "columns_forward columns_backward", "columns_forward columns_gradient"),
        Long(
            (2, 40, 5000), EACH_PIXEL, "columns_part columns_join columns_backward", "columns_forward columns_gradient"
        ),
    ],
    "diagonal_matmul": [Long((5, 65536), {}, "rows_backward rows_finish", "rows_backward rows_finish")],
}
GATED = [
    Long((3, 262145), {}, "forward backward", "forward backward"),
    Long((257, 2 * 4099), {"packed": True}, "forward backward", "forward backward"),
]
OTHERS = {
    "swiglu": GATED,
    "geglu": GATED,
    "rope": [
        Long((1, 4, 70_000, 64), {"kv_heads": 2}, "forward backward", "forward backward"),
        Long((2, 32, 300, 128), {"kv_heads": 8, "layout": "by_token"}, "forward backward", "forward backward"),
    ],
    "fused_linear_rowsum": [
        Long((600, 2048), {}, "column_sums row_dots strips_backward", "dot_rows spread_rows repeat_row"),
        Long((8192, 4096), {}, "column_sums row_dots write_gradients", "dot_rows spread_rows repeat_row"),
    ],
}


def _cases(table: dict[str, list[Long]]) -> list[Any]:
    """Operator, backend, workload, and the kernels' names."""
    cases = []
    for name in table:
        if name not in ops.operator_names():
            continue
        for shape, options, *kernels in table[name]:
            workload = Workload.of(*shape, dtype="bfloat16", **options)
            for backend, launched in zip((Backend.CUDA.value, Backend.TRITON.value), kernels, strict=True):
                label = f"{name}-{backend}-{workload.label}"
                cases.append(pytest.param(ops.definition(name), backend, workload, set(launched.split()), id=label))
    return cases


def _launched_since(before: dict[str, int]) -> set[str]:
    return {name.partition(".")[2] for name, count in counts().items() if count > before.get(name, 0)}


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "strided": lambda grad: torch.stack((grad, grad), -1)[..., 0],
    "expanded": lambda grad: grad[:1].expand_as(grad),
    "misaligned": lambda grad: torch.cat((grad.new_zeros(1), grad.flatten()))[1:].view(grad.shape),
}


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("operator", "backend", "workload", "kernels"), _cases(LONG))
def test_the_gradient_that_a_long_backward_is_given_may_lie_anyhow(
    operator: Operator,
    backend: str,
    workload: Workload,
    kernels: set[str],
    layout: str,
    monkeypatch: pytest.MonkeyPatch,
    device: torch.device,
) -> None:
    made, dtype = Answers._output_grad, workload.torch_dtype
    # In the answer's own dtype, of which no copy is made.
    monkeypatch.setattr(Answers, "_output_grad", lambda *given: LAYOUTS[layout](made(*given).to(dtype)))
    candidate, honest = (implementation(operator.name, name) for name in (backend, Backend.EAGER))
    before = counts()
    proof = prove(operator, candidate, honest, workload, device)
    assert proof.passed, f"{proof.status}: {proof.report or proof.message}"
    # Where no vector fits another kernel may be chosen.
    assert layout == "misaligned" or kernels <= _launched_since(before)


@pytest.mark.gpu
@pytest.mark.parametrize(("operator", "backend", "workload", "kernels"), _cases(LONG | OTHERS))
def test_a_cuda_graph_replays_a_long_forward_and_backward(
    operator: Operator, backend: str, workload: Workload, kernels: set[str], device: torch.device
) -> None:
    arguments, _ = leaves(operator, operator.make_inputs(workload, device))
    before = counts()
    assert replays(kernel(operator, backend, arguments), arguments)
    assert kernels <= _launched_since(before)
