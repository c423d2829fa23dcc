"""A workload: one concrete case of a problem."""

from enum import Enum
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, field_validator

from kernelyard.core.errors import unknown

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
"""The dtypes a kernel is proved in, by torch's own names."""

SHORT_NAMES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


class Mode(str, Enum):
    """What is run: the forward pass, the backward pass from a kept graph, or both."""

    FORWARD = "forward"
    BACKWARD = "backward"
    FULL = "full"


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` of torch.float32."""
    return str(dtype).removeprefix("torch.")


def parse_dtype(name: str) -> str:
    """torch's name of a dtype from `fp32`, `float32` or `torch.float32`; raises UsageError for any other."""
    plain = name.removeprefix("torch.")
    plain = SHORT_NAMES.get(plain, plain)
    if plain not in DTYPES:
        raise unknown("dtype", name, [*SHORT_NAMES, *DTYPES])
    return plain


class Workload(BaseModel):
    """Shapes and options of one case, its dtype and the seed of its inputs. Hashable, printable, comparable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: tuple[int, ...]
    """Shape of the leading input."""
    dtype: str
    """torch's name: float32, bfloat16 or float16."""
    options: tuple[tuple[str, Any], ...] = ()
    """The operator's non-tensor arguments and input variants, as sorted pairs."""
    seed: int = 0

    @field_validator("dtype")
    @classmethod
    def _known_dtype(cls, value: str) -> str:
        return parse_dtype(value)

    @classmethod
    def of(cls, *shape: int, dtype: str = "float32", seed: int = 0, **options: Any) -> "Workload":
        return cls(shape=shape, dtype=dtype, seed=seed, options=tuple(sorted(options.items())))

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    def option(self, name: str, default: Any) -> Any:
        return dict(self.options).get(name, default)

    @property
    def label(self) -> str:
        """`8x1000 float32 dim=0`."""
        extras = "".join(f" {key}={value}" for key, value in self.options)
        return f"{'x'.join(map(str, self.shape)) or 'scalar'} {self.dtype}{extras}"
