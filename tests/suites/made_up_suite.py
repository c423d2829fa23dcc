"""Made-up problems and a checkout of them in KernelBench's layout."""

from pathlib import Path

LINEAR = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.linear = nn.Linear(width, out)

    def forward(self, x):
        return torch.relu(self.linear(x))

def get_inputs():
    return [torch.rand(16, {width})]

def get_init_inputs():
    return [{width}, 32]
"""


NUMBERS = {1: (1, 2, 10), 2: (1, 2, 3, 4, 10), 3: (1, 2, 10), 4: (1,)}
"""The problems of the made-up checkout, by level."""


def checkout(root: Path) -> Path:
    """A folder like KernelBench's, with the problems of NUMBERS."""
    for level, chosen in NUMBERS.items():
        folder = root / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        for number in chosen:
            (folder / f"{number}_Linear_{level}.py").write_text(LINEAR.format(width=8 * number))
    return root
