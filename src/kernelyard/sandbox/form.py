"""How the outputs of one call hang together: what they are returned in, and in whose memory they lie."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, strided
from torch.nn import Parameter

from kernelyard.sandbox.wire import MOST_OUTPUTS, Container, key_name, named_leaves


class Form(NamedTuple):
    """Of one output."""

    containers: tuple[Container, ...] = ()
    """What it is returned in, from the outermost on. A subclass is what it derives from: a named tuple is a tuple."""
    memory_of: tuple[str, ...] = ()
    """The inputs, and the outputs before it, whose memory it overlaps; none where it has its own."""


ALONE = Form()


def forms_of(returned: Any, inputs: Sequence[Any]) -> list[Form]:
    """One for each of `named_leaves(returned)`, which a call made of `inputs`."""
    leaves = named_leaves(returned)
    if len(leaves) > MOST_OUTPUTS:  # of which nobody hears
        return [ALONE] * len(leaves)
    known = [(name, span) for name, value in named_leaves(list(inputs), "input") if (span := _span(value))]
    forms = []
    for containers, (name, value) in zip(_containers(returned), leaves, strict=True):
        span = _span(value)
        forms.append(Form(containers, tuple(owner for owner, other in known if span and _overlap(span, other))))
        known += [(name, span)] if span else []
    return forms


def _containers(value: Any, inside: tuple[Container, ...] = ()) -> list[tuple[Container, ...]]:
    """In the order of `named_leaves`."""
    if isinstance(value, (list, tuple)):
        inside = (*inside, Container("list" if isinstance(value, list) else "tuple", len(value)))
        return [found for item in value for found in _containers(item, inside)]
    if isinstance(value, dict):
        items = sorted(((key_name(key), item) for key, item in value.items()), key=lambda pair: pair[0])
        inside = (*inside, Container("dict", len(value)))
        return [found for _, item in items for found in _containers(item, inside)]
    return [inside]


def _span(value: Any) -> tuple[str, int, int] | None:
    """The device, and the first and last byte of a plain tensor's elements; None of what has none."""
    if type(value) not in (Tensor, Parameter) or value.layout is not strided or not value.numel():
        return None
    first = Tensor.data_ptr(value)
    steps = sum((extent - 1) * step for extent, step in zip(value.shape, value.stride(), strict=True))
    return (str(value.device), first, first + (steps + 1) * value.element_size()) if first else None


def _overlap(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]
