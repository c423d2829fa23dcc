"""Two tiny problems and solutions to them that end in every way, as texts."""

from pathlib import Path

PROBLEMS = {
    "1_Softmax.py": """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
def get_inputs(): return [torch.randn(16, 64)]
def get_init_inputs(): return []
""",
    "2_Linear.py": """
import torch
class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
    def forward(self, x):
        return self.linear(x)
def get_inputs(): return [torch.randn(8, 32)]
def get_init_inputs(): return [32]
""",
}
_SOFTMAX = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        {body}
"""
_LINEAR = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
    def forward(self, x):
        {body}
"""
SOLUTIONS = {
    (1, 0): (_SOFTMAX.format(body="return torch.softmax(x, dim=-1)"), "passed"),
    (1, 1): (_SOFTMAX.format(body="return torch.softmax(x, dim=0)"), "incorrect_value"),
    (1, 2): (_SOFTMAX.format(body="return torch.softmax(x, dim=-1)[:1]"), "incorrect_shape"),
    (1, 3): (_SOFTMAX.format(body="return torch.softmax(x, dim=-1).double()"), "incorrect_dtype"),
    (1, 4): (_SOFTMAX.format(body="return x.copy_(torch.softmax(x, dim=-1)).clone()"), "input_mutated"),
    (1, 5): ("def (:", "compile_error"),
    (1, 6): ("raise RuntimeError('Error building extension mine')  # load_inline", "compile_error"),
    (1, 7): ("x = 1", "load_error"),
    (2, 0): (_LINEAR.format(body="return self.linear(x)"), "passed"),
    (2, 1): (_LINEAR.format(body="raise ValueError('no')"), "runtime_error"),
    (2, 2): (_LINEAR.format(body="import os; os._exit(3)"), "crashed"),
    (2, 3): (_LINEAR.format(body="while True: pass"), "timeout"),
}
"""By problem and sample: the text, and the status that it must end in."""


def write(problems: Path, run: Path) -> None:
    """A suite's folder, and a run's by KernelBench's names."""
    for folder in (problems, run):
        folder.mkdir(parents=True)
    for name, text in PROBLEMS.items():
        (problems / name).write_text(text)
    for (problem, sample), (text, _) in SOLUTIONS.items():
        (run / f"level_0_problem_{problem}_sample_{sample}_kernel.py").write_text(text)
