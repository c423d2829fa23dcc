"""The library's operators as the judge sees them: an `Operator` and its `Implementation`s."""

from kernelyard import ops
from kernelyard.core.errors import unknown
from kernelyard.core.operator import Backend, Implementation


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
