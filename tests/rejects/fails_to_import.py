"""Needs a package that is not there.

expect: load_error
"""

import a_package_that_does_not_exist  # noqa: F401
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x
