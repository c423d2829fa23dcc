"""What a problem costs at the least, counted on torch's meta device, which allocates nothing and computes nothing."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from kernelyard.core.errors import FAULTS, first_line
from kernelyard.core.operator import Cost
from kernelyard.core.problem import Problem, place
from kernelyard.sandbox.wire import named_leaves

META = torch.device("meta")


@dataclass(frozen=True)
class Count:
    """A problem's size in one dtype."""

    parameters: int
    """Elements of the model's parameters, buffers not among them."""
    elements: int
    """Of inputs, answers, parameters and buffers together."""
    cost: Cost
    """Inputs and weights read once, answers written once; operations are those of matrix products and convolutions."""


class Uncountable(Exception):
    """The problem cannot be run on the meta device; says why in one line."""

    def __init__(self, reason: str, least: Count | None = None) -> None:
        super().__init__(reason)
        self.least = least
        """Inputs and weights alone, where it is the forward pass that looks at values."""


def count(problem: Problem, dtype: torch.dtype) -> Count:
    """Size and least cost of one call. Raises Uncountable for a problem that looks at values."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            model = _constructed(problem).to(dtype).train(problem.train_mode)
            with META:
                inputs = [place(value, dtype, META) for value in problem.get_inputs()]
        except FAULTS as error:
            raise Uncountable(_why(error)) from error
        try:
            with META, _Operations() as counted, _Recurrent() as recurrent:
                answers = model(*inputs)
        except FAULTS as error:
            raise Uncountable(_why(error), _made(model, inputs, (), 0)) from error
    return _made(model, inputs, answers, counted.total + recurrent.total)


def _constructed(problem: Problem) -> Module:
    """On the meta device; on the host and moved there where the constructor looks at a value."""
    try:
        with META:
            return problem.model_class(*problem.get_init_inputs())
    except (RuntimeError, NotImplementedError) as error:
        # Hugging Face refuses the meta device in words of its own, and would read gigabytes of weights here.
        if not _valueless(error):
            raise
        return problem.model_class(*problem.get_init_inputs()).to(META)


def _valueless(error: BaseException) -> bool:
    return isinstance(error, NotImplementedError) or "meta tensor" in str(error)


def _why(error: BaseException) -> str:
    return "looks at values" if _valueless(error) else first_line(error)


def _made(model: Module, inputs: Any, answers: Any, operations: int) -> Count:
    read = _tensors([inputs, model.state_dict()])
    written = _tensors(answers)
    return Count(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        elements=sum(tensor.numel() for tensor in (*read, *written)),
        cost=Cost(_bytes(read), _bytes(written), operations, matrix=operations > 0),
    )


class _Operations(TorchDispatchMode):
    """Adds up what torch's own formulas say; FlopCounterMode's tree of modules costs a third more time."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        answer = func(*args, **kwargs)
        if (formula := flop_registry.get(func.overloadpacket)) is not None:
            self.total += formula(*args, **kwargs, out_val=answer)
        return answer


class _Recurrent(TorchFunctionMode):
    """Answers LSTM, GRU and RNN layers by their shapes alone, and counts them.

    On the meta device torch takes them apart step by step: 512 steps of six layers take 9 to 19 s.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # (input, state or states, weights, ...); a packed sequence has its lengths in the second place.
        if getattr(func, "__name__", "") in ("lstm", "gru", "rnn_tanh", "rnn_relu") and isinstance(args[2], list):
            return self._answer(*args)
        return func(*args, **(kwargs or {}))

    def _answer(
        self,
        x: Tensor,
        state: Tensor | tuple[Tensor, Tensor],
        weights: list[Tensor],
        _bias: bool,
        _layers: int,
        _dropout: float,
        _train: bool,
        bidirectional: bool,
        _batch_first: bool,
    ) -> tuple[Tensor, ...]:
        states = (state,) if isinstance(state, Tensor) else state
        steps = x.shape[0] * x.shape[1]
        self.total += 2 * steps * sum(weight.numel() for weight in weights if weight.dim() == 2)
        width = states[0].shape[-1] * (2 if bidirectional else 1)
        return (x.new_empty(*x.shape[:2], width), *map(torch.empty_like, states))


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for _, leaf in named_leaves(value) if isinstance(leaf, Tensor)]


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
