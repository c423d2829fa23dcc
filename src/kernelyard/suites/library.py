"""The library's operators as the judge sees them: an `Operator` and its `Implementation`s."""

from collections.abc import Callable, Iterable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from kernelyard import ops
from kernelyard.core.errors import first_line, unknown
from kernelyard.core.operator import Backend, Implementation, Operator


def implementation(operator: str, backend: str) -> Implementation:
    """One backend of an operator; raises UsageError for a name that is not there."""
    module = ops.backend_module(operator, backend)
    return Implementation(
        backend=Backend(backend).value,
        call=getattr(module, operator),
        refusal=module.refusal,
        source_files=tuple(ops.source_files(operator, backend)),
    )


def implementations(operator: str, only: list[str] | None = None) -> list[Implementation]:
    """The backends of an operator in the ladder's order, or just those named in `only`."""
    present = [backend.value for backend in ops.backends(operator)]
    for name in only or ():
        if name not in present:
            raise unknown(f"backend of {operator}", name, present)
    return [implementation(operator, name) for name in present if not only or name in only]


PEER_PACKAGES = {"liger": "liger-kernel", "quack": "quack-kernels"}
"""What pip installs for a foreign library whose package is called otherwise."""


def version_of(library: str) -> str | None:
    """The version of a foreign library; None for what is no package."""
    try:
        return metadata.version(PEER_PACKAGES.get(library, library))
    except metadata.PackageNotFoundError:
        return None


class PeerAbsent(Exception):
    """A foreign library that cannot be imported here; the message is one line that says how to get it."""


def peer(operator: str, library: str) -> Implementation:
    """A foreign library's way of an operator, as one more implementation of it.

    Raises UsageError for a library that the operator has no file for, PeerAbsent where it cannot be imported.
    """
    try:
        module = ops.peer_module(operator, library)
    except ImportError as error:
        package = PEER_PACKAGES.get(library, library)
        raise PeerAbsent(f"{library} is not installed here: pip install {package} ({first_line(error)})") from error
    return Implementation(
        backend=library,
        call=getattr(module, operator),
        refusal=module.refusal,
        source_files=(Path(module.__file__ or ""),),
        note=ops.peer_notes(operator).get(library, ""),
        walks_once=getattr(module, "WALKS_ONCE", False),
        overwrites=getattr(module, "OVERWRITES", False),
    )


PUBLIC = "public"
"""Provider of the public function's rows: what users pay who name no backend."""


def is_ours(provider: str) -> bool:
    """Whether a provider is this library's own code, and no peer's."""
    return provider == PUBLIC or provider in [backend.value for backend in Backend]


def public_call(operator: Operator, inputs: Iterable[Any]) -> Callable[[], Any]:
    """The public function on a workload's inputs, no backend named."""
    arguments, named = operator.public_arguments(*inputs)
    return partial(getattr(ops, operator.name), *arguments, **named)


def public(operator: Operator) -> Implementation:
    """The public function as one more implementation, so that it can be proved like any."""
    return Implementation(
        backend=PUBLIC,
        call=lambda *inputs: public_call(operator, inputs)(),
        refusal=lambda *inputs: None,
    )
