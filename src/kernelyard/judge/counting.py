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
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from kernelyard.core.errors import FAULTS, first_line
from kernelyard.core.operator import Cost
from kernelyard.core.problem import Problem, place
from kernelyard.judge.known import MOST_ELEMENTS, Known
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
    """What is read of inputs and weights, once, and answers written once; operations are those of matrix products and
    convolutions."""


class Uncountable(Exception):
    """The problem cannot be run on the meta device; says why in one line."""

    def __init__(self, reason: str, least: Count | None = None) -> None:
        super().__init__(reason)
        self.least = least
        """Inputs and weights alone, where it is the forward pass that looks at values."""


def count(problem: Problem, dtype: torch.dtype) -> Count:
    """Size and least cost of one call. Raises Uncountable for a problem that looks at values.

    Those of integers among small inputs, token ids, are of one draw where it looks at them.
    """
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            model = _constructed(problem).to(dtype).train(problem.train_mode)
            with META:
                inputs = [place(value, dtype, META) for value in problem.get_inputs()]
        except FAULTS as error:
            raise Uncountable(_why(error)) from error
        held = _without_addresses([inputs, model.state_dict()])
        elements = sum(tensor.numel() for tensor in held)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        try:
            answers, cost = _forward(model, inputs, held, Known())
        except FAULTS as error:
            try:
                if not _valueless(error):
                    raise
                answers, cost = _forward(model, inputs, held, _drawn(problem, inputs))
            except FAULTS as last:
                least = Count(parameters, elements, Cost(_bytes(held), 0, 0, matrix=False))
                raise Uncountable(_why(last), least) from last
    return Count(parameters, elements + sum(answer.numel() for answer in answers), cost)


def _forward(model: Module, inputs: Sequence[Any], held: Sequence[Tensor], known: Known) -> tuple[list[Tensor], Cost]:
    with META, known, _Operations(held, known) as counted, _Recurrent(counted):
        answers = _tensors(model(*inputs))
    return answers, counted.cost(answers)


def _drawn(problem: Problem, inputs: Sequence[Any]) -> Known:
    """What is known when the integers among `inputs` are those of one draw, where all of them are few."""
    known = Known()
    if sum(tensor.numel() for tensor in _tensors(inputs)) > MOST_ELEMENTS:
        return known
    with torch.random.fork_rng(devices=[]):
        drawn = _tensors([place(value, torch.float32, torch.device("cpu")) for value in problem.get_inputs()])
    for tensor, copy in zip(_tensors(inputs), drawn, strict=True):
        if not copy.is_floating_point() and copy.shape == tensor.shape:
            known.give(tensor, copy)
    return known


def cost_of(model: Module, inputs: Sequence[Any]) -> Cost:
    """The least cost of a call, counted by making it."""
    counted = _Operations(_tensors([inputs, model.state_dict()]), Known())
    with torch.no_grad(), counted:
        answers = _tensors(model(*inputs))
    return counted.cost(answers)


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
    if "data pointer" in str(error):
        return "launches a kernel of its own"
    return "looks at values" if _valueless(error) else first_line(error)


def _without_addresses(value: Any) -> list[Tensor]:
    """The tensors in it; of those on the meta device whoever asks for the address is refused.

    It would be zero, which Triton launches a kernel with: an illegal access, and the end of the process's context.
    """
    tensors = _tensors(value)
    for tensor in tensors:
        if tensor.is_meta:
            torch._C._set_throw_on_mutable_data_ptr(tensor)
    return tensors


# Elements that are read of the first operand, where that is not all of it: rows of a table, one class of each row.
_PICKED: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("embedding", "gather", "index", "index_select", "take"), lambda answer, *_: answer.numel()),
    **dict.fromkeys(
        ("_embedding_bag", "_embedding_bag_forward_only"), lambda _, table, rows, *__: rows.numel() * table.shape[1]
    ),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), lambda _, __, classes, *___: classes.numel()),
}


class _Operations(TorchDispatchMode):
    """Adds up what torch's own formulas say, and what is read of tensors that are `held` before.

    FlopCounterMode's tree of modules costs a third more time.
    """

    def __init__(self, held: Sequence[Tensor], known: Known) -> None:
        super().__init__()
        self.total = 0
        self._held = held
        self._known = known
        self._read = dict.fromkeys(map(_place, held), 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default and (value := self._known.value(args[0])) is not None:
            return value
        answer = func(*args, **kwargs)
        _without_addresses(tree_leaves(answer))
        self._known.follow(func, args, kwargs, answer)
        if (formula := flop_registry.get(func.overloadpacket)) is not None:
            self.total += formula(*args, **kwargs, out_val=answer)
        # A view reads nothing; who takes it does.
        if not func.is_view:
            operands = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
            picked = _PICKED.get(func.overloadpacket.__name__)
            for i, operand in enumerate(operands):
                self.read(operand, picked(answer, *args) if picked and i == 0 else operand.numel())
        return answer

    def read(self, operand: Tensor, elements: int) -> None:
        """So many elements of it."""
        if (place := _place(operand)) in self._read:
            self._read[place] += elements * operand.element_size()

    def cost(self, answers: Sequence[Tensor]) -> Cost:
        """What is there already is read once, however often it is held, and is not written as an answer."""
        there = _by_place(self._held)
        read = sum(min(size, self._read[place]) for place, size in there.items())
        written = sum(size for place, size in _by_place(answers).items() if place not in there)
        return Cost(read, written, self.total, matrix=self.total > 0)


def _place(tensor: Tensor) -> int:
    """Where its elements lie, which a view of it shares."""
    return tensor.untyped_storage()._cdata


def _by_place(tensors: Sequence[Tensor]) -> dict[int, int]:
    """Bytes at each place that `tensors` lie in."""
    sizes: dict[int, int] = {}
    for tensor in tensors:
        size = sizes.get(_place(tensor), 0) + tensor.numel() * tensor.element_size()
        sizes[_place(tensor)] = min(size, tensor.untyped_storage().nbytes())
    return sizes


class _Recurrent(TorchFunctionMode):
    """Answers LSTM, GRU and RNN layers by their shapes alone, and counts them.

    On the meta device torch takes them apart step by step: 512 steps of six layers take 9 to 19 s.
    """

    def __init__(self, counted: _Operations) -> None:
        super().__init__()
        self._counted = counted

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
        for operand in (x, *states, *weights):
            self._counted.read(operand, operand.numel())
        self._counted.total += 2 * steps * sum(weight.numel() for weight in weights if weight.dim() == 2)
        width = states[0].shape[-1] * (2 if bidirectional else 1)
        return (x.new_empty(*x.shape[:2], width), *map(torch.empty_like, states))


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for _, leaf in named_leaves(value) if isinstance(leaf, Tensor)]


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
