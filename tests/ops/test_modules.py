"""What every module of `kernelyard.nn` promises, whichever it is."""

import copy
import inspect
import pickle
from importlib import import_module
from typing import Any

import pytest
import torch

from kernelyard import nn, ops

SIZE = 8
MODULES = [pytest.param(getattr(nn, name), id=name) for name in nn.__all__]


def _parameters(kind: type) -> list[inspect.Parameter]:
    return [p for p in inspect.signature(kind).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]


def _made(kind: Any, **options: Any) -> torch.nn.Module:
    """With a size for whatever has to be said, and random parameters."""
    module = kind(**{p.name: SIZE for p in _parameters(kind) if p.default is p.empty}, **options)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


def _torchs_own(kind: type) -> type | None:
    """The class of torch.nn that a module derives from, where it is more than `Module`."""
    return next((base for base in kind.__mro__ if base is getattr(torch.nn, base.__name__, None)), None)


@pytest.mark.parametrize("name", ops.operator_names())
def test_every_operator_is_a_module_too(name: str) -> None:
    offered = import_module(f"kernelyard.ops.{name}.module").__all__
    assert offered and set(offered) <= set(nn.__all__)


@pytest.mark.parametrize("kind", [item for item in MODULES if _torchs_own(item.values[0]) is not torch.nn.Module])
def test_torchs_module_is_replaced_by_its_name_and_loads_either_way(kind: type) -> None:
    """What ours takes beside torch's arguments comes after them."""
    theirs = _torchs_own(kind)
    assert theirs is not None
    names = [p.name for p in _parameters(theirs)]
    assert [p.name for p in _parameters(kind)][: len(names)] == names
    ours, other = _made(kind), _made(theirs)
    ours.load_state_dict(other.state_dict())
    assert list(ours.state_dict()) == list(other.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), other.parameters(), strict=True))
    other.load_state_dict(_made(kind).state_dict())


@pytest.mark.parametrize("kind", MODULES)
def test_a_module_is_copied_stored_and_moved_like_any(kind: type, tmp_path: Any) -> None:
    module = _made(kind)
    torch.save(module, tmp_path / "module.pt")
    copies = [
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
        torch.load(tmp_path / "module.pt", weights_only=False),
    ]
    for other in copies:
        assert type(other) is kind and repr(other) == repr(module)
        assert all(torch.equal(a, b) for a, b in zip(other.parameters(), module.parameters(), strict=True))
        options = {key: value for key, value in vars(module).items() if not key.startswith("_")}
        assert {key: vars(other)[key] for key in options} == options
    assert all(p.dtype is torch.bfloat16 for p in module.to(torch.bfloat16).parameters())


@pytest.mark.parametrize("kind", [item for item in MODULES if list(_made(item.values[0]).parameters())])
def test_parameters_are_made_where_and_as_what_is_asked(kind: type) -> None:
    module = kind(
        **{p.name: SIZE for p in _parameters(kind) if p.default is p.empty}, device="meta", dtype=torch.float16
    )
    assert all(p.is_meta and p.dtype is torch.float16 for p in module.parameters())
