"""What a caller gets wrong: one line that names what was expected, the same from every operator."""

import inspect
import logging
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from plain_calls import OPERATORS, cases, inputs, same

from kernelyard import nn, ops
from kernelyard.core.errors import UsageError
from kernelyard.core.operator import Backend, Operator
from kernelyard.judge.prepare import as_tuple
from kernelyard.kernels.prepared import Latest
from kernelyard.ops import dispatch

CPU = torch.device("cpu")
OF_ANOTHER_KIND: dict[Any, list[Any]] = {
    int: [None, "a", 1.5, True, [0], (0, 1), torch.tensor(0)],
    float: [None, "a", True, [0.5], torch.tensor(0.5)],
    bool: [None, "yes", 1, [True]],
    str: [None, 1, ["mean"], torch.zeros(2)],
    torch.dtype: [None, "float32", 1, torch.zeros(2)],
    int | Sequence[int]: [None, "a", 4.0, True, [[8]], [8.5], [True], torch.tensor(8)],
}
"""By a parameter's annotation; beside None, where that is one of its kinds."""


def _arguments(operator: Operator) -> dict[str, Any]:
    """The public function's arguments for a plain call, by its own names."""
    positional, named = operator.public_arguments(*inputs(operator, 3, CPU).values())
    bound = inspect.signature(getattr(ops, operator.name)).bind(*positional, **named)
    bound.apply_defaults()
    return {name: value for name, value in bound.arguments.items() if name != "backend"}


def _tensors(arguments: dict[str, Any]) -> list[str]:
    return [name for name, value in arguments.items() if isinstance(value, torch.Tensor)]


def _raises(kind: type[Exception], operator: Operator, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(kind) as caught:
        getattr(ops, operator.name)(**arguments)
    message = str(caught.value)
    assert said in message and operator.name in message and "\n" not in message


@pytest.fixture(autouse=True)
def _calls_have_been_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another layout: a call looks itself up before it is checked, which without a GPU there is no reason for."""
    for name in ops.operator_names():
        module = import_module(f"kernelyard.ops.{name}")
        if hasattr(module, "prepared"):
            monkeypatch.setitem(module.prepared, "another call", lambda *_: pytest.fail("launched"))


@pytest.mark.parametrize("backend", [None, "triton"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_what_is_no_tensor_is_named(operator: Operator, backend: str | None) -> None:
    given = {**_arguments(operator), "backend": backend}
    parameters = inspect.signature(getattr(ops, operator.name)).parameters
    for name in _tensors(given):
        _raises(TypeError, operator, {**given, name: [1.0, 2.0]}, f"{name} is of type list, expected a tensor")
        if parameters[name].default is inspect.Parameter.empty:
            _raises(TypeError, operator, {**given, name: None}, f"{name} is None, expected a tensor")


def _of_another_kind(annotation: Any, right: Any) -> list[Any]:
    """Values that the annotation does not allow, and those among them that Python takes for the right one."""
    kinds = get_args(annotation)
    if NoneType in kinds:
        return [value for value in _of_another_kind(kinds[0], right) if value is not None]
    equals = {
        int: lambda: [float(right)],
        float: lambda: [bool(right)] if right in (0, 1) else [],
        int | Sequence[int]: lambda: [tuple(map(float, right))],
    }
    return [*OF_ANOTHER_KIND[annotation], *equals.get(annotation, list)()]


def _others(operator: Operator) -> dict[str, Any]:
    """The annotations of the public function's parameters that are no tensors, by name."""
    parameters = inspect.signature(getattr(ops, operator.name)).parameters.values()
    return {
        parameter.name: parameter.annotation
        for parameter in parameters
        if parameter.name != "backend" and torch.Tensor not in (parameter.annotation, *get_args(parameter.annotation))
    }


@pytest.mark.parametrize("backend", [None, *Backend])
@pytest.mark.parametrize("operator", OPERATORS)
def test_an_argument_of_another_kind_is_named_whatever_the_backend(operator: Operator, backend: str | None) -> None:
    given = {**_arguments(operator), "backend": backend}
    for name, annotation in _others(operator).items():
        for value in _of_another_kind(annotation, given[name]):
            _raises(TypeError, operator, {**given, name: value}, f"{operator.name}: {name}")


@pytest.mark.parametrize("backend", [None, *Backend])
@pytest.mark.parametrize("operator", OPERATORS)
def test_numbers_of_numpy_are_numbers(operator: Operator, backend: str | None) -> None:
    """As torch's own functions have it: a size that `np.prod` made was refused as no integer."""
    given, others = {**_arguments(operator), "backend": backend}, _others(operator)
    numeric = {name for name in others if isinstance(given[name], int | float) and type(given[name]) is not bool}
    of_numpy = {name: (np.int64 if type(given[name]) is int else np.float64)(given[name]) for name in numeric}
    of_numpy |= {name: tuple(map(np.int64, given[name])) for name in others if isinstance(given[name], tuple)}
    try:
        expected = as_tuple(getattr(ops, operator.name)(**given))
    except UsageError as refused:
        pytest.skip(str(refused))
    assert same(expected, as_tuple(getattr(ops, operator.name)(**{**given, **of_numpy})))


def test_modules_take_sizes_of_numpy() -> None:
    x, width = torch.randn(3, 8), np.prod((2, 4))
    assert same((nn.LayerNorm(width)(x),), (torch.nn.LayerNorm(8)(x),))
    assert same((nn.RMSNorm(width, np.float32(1e-5))(x),), (torch.nn.RMSNorm(8, float(np.float32(1e-5)))(x),))
    assert nn.FusedAddRMSNorm(width)(x, x)[1].shape == x.shape
    # Dynamo takes a module's numpy number for a tensor.
    for made in (nn.LayerNorm(width), nn.RMSNorm((width,)), nn.FusedAddRMSNorm([width])):
        assert made.normalized_shape == (8,) and type(made.normalized_shape[0]) is int


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_argument_of_another_kind_is_named_where_the_right_call_is_prepared(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 == 1.0 == True: what was prepared for one of them is not for the others. Launched on no GPU."""
    module = import_module(f"kernelyard.ops.{operator.name}")
    if not hasattr(module, "prepared"):
        pytest.skip("nothing is prepared for its public function")
    if hasattr(module, "latest"):
        monkeypatch.setattr(module, "latest", Latest())
    given, launches = _arguments(operator), []
    known = {**given, "activation": given.get("approximate", "silu")}
    key = module.layout(*(known[name] for name in inspect.signature(module.layout).parameters))
    monkeypatch.setitem(module.prepared, key, lambda *tensors: launches.append(tensors) or tensors)
    for _ in range(3):
        getattr(ops, operator.name)(**given)
    assert len(launches) == 3
    for name, annotation in _others(operator).items():
        for value in _of_another_kind(annotation, given[name]):
            _raises(TypeError, operator, {**given, name: value}, f"{operator.name}: {name}")
    assert len(launches) == 3


@pytest.mark.parametrize("backend", [None, "eager", "triton"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_tensors_lie_on_one_device(operator: Operator, backend: str | None) -> None:
    given = {**_arguments(operator), "backend": backend}
    first, *others = _tensors(given)
    for name in others:
        wrong = {**given, name: given[name].to("meta")}
        _raises(UsageError, operator, wrong, f"{name} is on meta and {first} on cpu, expected one device")


@pytest.mark.parametrize("operator", OPERATORS)
def test_what_is_prepared_for_one_device_is_not_launched_for_another(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layout tells a parameter that was left on the CPU from one that was not: a kernel would read its address."""
    module = import_module(f"kernelyard.ops.{operator.name}")
    layout = getattr(module, "layout", None)
    if not hasattr(module, "prepared"):
        pytest.skip("nothing is prepared for its public function")
    given = {**_arguments(operator), "activation": "none"}
    names = list(inspect.signature(layout).parameters)
    for name in _tensors(given):
        found = []
        for moved in (None, given[name]):
            monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor, moved=moved: int(tensor is moved))
            found.append(layout(**{key: given[key] for key in names}))
        assert found[0] != found[1], name


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_dtype_or_layout_that_nothing_takes_is_named(operator: Operator) -> None:
    """Each of these is looked up among prepared calls: a sparse tensor has no address."""
    given = _arguments(operator)
    floating = [name for name in _tensors(given) if given[name].is_floating_point()]
    for name in floating:
        _raises(UsageError, operator, {**given, name: given[name].long()}, "not int64")
        narrow = given[name].to(torch.float8_e4m3fn)
        _raises(UsageError, operator, {**given, name: narrow}, "of 16 bits or more, not float8_e4m3fn")
    sparse = {**given, floating[0]: given[floating[0]].to_sparse()}
    _raises(UsageError, operator, sparse, "takes strided tensors, not sparse_coo")


@pytest.mark.parametrize(("operator", "backend"), cases(tuple(Backend)))
def test_a_backend_refuses_by_name_what_it_does_not_take(operator: Operator, backend: str) -> None:
    given = _arguments(operator)
    doubles = {name: given[name].double() for name in _tensors(given) if given[name].is_floating_point()}
    if backend == Backend.EAGER.value:
        outputs = as_tuple(getattr(ops, operator.name)(**{**given, **doubles, "backend": backend}))
        assert all(output.dtype is torch.float64 for output in outputs)
        return
    said = f"the {backend} backend of {operator.name} does not take this input: "
    _raises(UsageError, operator, {**given, **doubles, "backend": backend}, said)


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_misspelt_backend_is_answered_with_the_nearest(operator: Operator) -> None:
    with pytest.raises(UsageError, match="unknown backend 'tritn': did you mean 'triton'"):
        getattr(ops, operator.name)(**_arguments(operator), backend="tritn")


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_cpu_call_falls_back_to_eager_and_says_so_once(operator: Operator, caplog: pytest.LogCaptureFixture) -> None:
    dispatch._said.clear()
    given = _arguments(operator)
    with caplog.at_level(logging.WARNING, logger="kernelyard.ops"):
        first, second = (as_tuple(getattr(ops, operator.name)(**given)) for _ in range(2))
    assert same(first, second)
    assert same(first, as_tuple(getattr(ops, operator.name)(**given, backend="eager")))
    assert [record.getMessage() for record in caplog.records] == [
        f"{operator.name} on cpu runs torch's eager implementation: no kernel runs on a CPU"
    ]


def test_a_call_that_is_traced_says_so_too(caplog: pytest.LogCaptureFixture) -> None:
    dispatch._said.clear()
    with caplog.at_level(logging.WARNING, logger="kernelyard.ops"):
        torch.compile(lambda x: ops.softmax(x), backend="eager", fullgraph=True)(torch.randn(3, 4))
    said = [record.getMessage() for record in caplog.records if record.name == "kernelyard.ops"]
    assert said == ["softmax on cpu runs torch's eager implementation: no kernel runs on a CPU"]


WITHOUT_COMPILERS = """
import sys
sys.modules["triton"] = sys.modules["cuda"] = None
import torch
from kernelyard import ops
from kernelyard.core.errors import UsageError
ops.softmax(torch.zeros(3, device="meta"))
for backend, package in (("triton", "triton"), ("cuda", "cuda")):
    try:
        ops.softmax(torch.zeros(3), backend=backend)
    except UsageError as error:
        assert f"needs the package {package}" in str(error) and "which is not installed" in str(error), error
    else:
        raise AssertionError(backend)
"""


def test_a_backend_whose_compiler_is_not_installed_is_passed_over_or_refused() -> None:
    """triton and cuda-core are for Linux alone; elsewhere a device that is no CPU still gets eager."""
    subprocess.run([sys.executable, "-c", WITHOUT_COMPILERS], check=True)


@pytest.mark.parametrize("operator", OPERATORS)
def test_meta_tensors_have_shapes_and_dtypes(operator: Operator) -> None:
    """A model is built and counted on the meta device before its weights are loaded."""
    given = _arguments(operator)
    meta = {name: value.to("meta") if isinstance(value, torch.Tensor) else value for name, value in given.items()}
    outputs = as_tuple(getattr(ops, operator.name)(**meta))
    for got, expected in zip(outputs, as_tuple(getattr(ops, operator.name)(**given)), strict=True):
        assert got.is_meta and got.shape == expected.shape and got.dtype == expected.dtype
    _raises(UsageError, operator, {**meta, "backend": "triton"}, "needs data, which a meta tensor does not have")


def _defaults(function: Any) -> dict[str, Any]:
    """Arguments by name, with their defaults; those of a function that torch has in C++ alone stand in its schema."""
    if not inspect.isbuiltin(function):
        return {name: each.default for name, each in inspect.signature(function).parameters.items()}
    arguments = getattr(torch.ops.aten, function.__name__).default._schema.arguments
    defaults = [each.default_value if each.has_default_value() else inspect.Parameter.empty for each in arguments]
    return dict(zip((each.name for each in arguments), defaults, strict=True))


NAMED_OTHERWISE = {"fused_linear_rowsum": F.linear}
OPTIONS = {
    "softmax": (F.softmax, ("dtype",)),
    "layer_norm": (F.layer_norm, ("weight", "bias", "eps")),
    "rms_norm": (F.rms_norm, ("weight", "eps")),
    "fused_add_rms_norm": (F.rms_norm, ("input", "weight")),
    "fused_linear_rowsum": (F.linear, ("bias",)),
    "cross_entropy": (F.cross_entropy, ("ignore_index", "reduction", "label_smoothing")),
    "geglu": (F.gelu, ("approximate",)),
}


@pytest.mark.parametrize(
    ("name", "function"),
    [
        pytest.param(name, getattr(F, name, NAMED_OTHERWISE.get(name)), id=name)
        for name in ops.operator_names()
        if hasattr(F, name) or name in NAMED_OTHERWISE
    ],
)
def test_arguments_are_torchs_own_in_name_and_order(name: str, function: Any) -> None:
    ours, theirs = inspect.signature(getattr(ops, name)).parameters.values(), list(_defaults(function))
    by_place = [parameter.name for parameter in ours if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    assert by_place == theirs[: len(by_place)]
    assert len(by_place) >= 1


@pytest.mark.parametrize(
    ("name", "option"),
    [(name, option) for name in OPTIONS if name in ops.operator_names() for option in OPTIONS[name][1]],
)
def test_an_option_that_torch_has_too_is_torchs_in_name_and_default(name: str, option: str) -> None:
    assert _defaults(getattr(ops, name))[option] == _defaults(OPTIONS[name][0])[option]


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_readme_shows_the_call_with_its_own_arguments(operator: Operator) -> None:
    text = Path(str(import_module(f"kernelyard.ops.{operator.name}").__file__)).with_name("README.md").read_text()
    shown = re.search(rf"`kernelyard\.ops\.{operator.name}\((.*)\)`", text)
    assert shown, "no call is shown"
    names = [part.partition("=")[0].strip() for part in shown[1].split(",")]
    assert names == list(_defaults(getattr(ops, operator.name)))[: len(names)]
