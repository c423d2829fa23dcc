"""What a session's requests may take, and what a solution is given before the first."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from kernelyard.core.verdict import Phase, Status
from kernelyard.sandbox.deadlines import IN_ALL, Deadlines
from kernelyard.sandbox.exchange import Ended
from kernelyard.sandbox.launch import choose
from kernelyard.sandbox.pool import Post, Worker
from kernelyard.sandbox.session import Session

CPU = torch.device("cpu")
SLOW = """
import time
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.3)
        return x
"""
MORE = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        return x * self.scale
"""
LAZY = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.LazyLinear(2)

    def forward(self, x):
        return self.fc(x)
"""
COLLECTS = """
import gc
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.tensor([gc.isenabled(), gc.get_freeze_count(), len(gc.get_objects())])
"""

DECLARES = """# coding: {}
import torch

@torch.jit.script
def f(x):
    y = x
    #{}    y = 2 * x
    return y

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return f(x)
"""


@contextlib.contextmanager
def opened(
    source: str, weights: dict[str, torch.Tensor], deadlines: Deadlines = Deadlines()
) -> Iterator[tuple[Session, str]]:
    with Session(Worker.start(Post(choose(None, "cpu"))), CPU, deadlines) as session:
        session.await_start()
        yield session, session.load("solution.py", source, "ModelNew", [], 1, torch.float32, weights)


def test_requests_that_each_end_in_time_may_not_go_on_for_ever() -> None:
    with opened(SLOW, {}, replace(Deadlines(), check=0.5)) as (session, _):
        session.phase = Phase.CHECK
        answered = []
        with pytest.raises(Ended, match=r"answers took over 2.5 s in all in phase check") as raised:
            while len(answered) < 4 * IN_ALL:
                answered.append(session.run([[torch.ones(2)]]))
        assert raised.value.status is Status.TIMEOUT and IN_ALL < len(answered) < 10


def test_weights_are_given_to_whoever_has_their_names_and_more_besides() -> None:
    x = torch.ones(3)
    with opened(MORE, {"scale": torch.tensor([1.0, 2.0, 3.0])}) as (session, weights):
        assert weights == "state_dict"
        session.run([[x]])
        (answer,) = session.fetch(0, [x]).tensors or ()
        assert answer.tolist() == [1.0, 2.0, 3.0]
    with opened(MORE, {"scale": torch.ones(4)}) as (_, weights):
        assert weights == "seed"


def test_weights_are_given_to_whoever_has_no_shape_of_his_own_yet() -> None:
    x = torch.ones(3)
    given = {"fc.weight": torch.arange(6.0).view(2, 3), "fc.bias": torch.tensor([10.0, 20.0])}
    with opened(LAZY, given) as (session, weights):
        assert weights == "state_dict"
        session.run([[x]])
        (answer,) = session.fetch(0, [x[:2]]).tensors or ()
        assert answer.tolist() == [13.0, 32.0]


@pytest.mark.parametrize(
    ("encoding", "comment", "refused"),
    [("utf-7", "+AAo-", True), ("latin-1", "\u00e9", True), ("latin-1", "", False), ("utf-8", "\u00e9", False)],
)
def test_what_runs_is_the_text_that_was_read(encoding: str, comment: str, refused: bool) -> None:
    """In utf-7 a line begins within the comment: for whoever follows the file, as TorchScript does of a function."""
    x, text = torch.ones(2), DECLARES.format(encoding, comment)
    if refused:
        with (
            pytest.raises(Ended, match=f"declares the encoding .*{encoding[-1]}, in which") as raised,
            opened(text, {}),
        ):
            pass
        assert raised.value.status is Status.COMPILE_ERROR
        return
    with opened(text, {}) as (session, _):
        session.run([[x]])
        (answer,) = session.fetch(0, [x]).tensors or ()
        assert answer.tolist() == [1, 1]


def test_behind_a_carriage_return_no_encoding_is_found_either() -> None:
    x = torch.ones(2)
    with opened("\r" + DECLARES.format("utf-7", "+AAo-").replace("@torch.jit.script\n", ""), {}) as (session, _):
        session.run([[x]])
        (answer,) = session.fetch(0, [x]).tensors or ()
        assert answer.tolist() == [1, 1]


def test_a_solutions_garbage_is_collected_and_torchs_own_objects_are_not_looked_through() -> None:
    with opened(COLLECTS, {}) as (session, _):
        session.run([[torch.ones(2)]])
        (seen,) = session.fetch(0, [torch.zeros(3, dtype=torch.int64)]).tensors or ()
        enabled, frozen, looked_through = seen.tolist()
        assert enabled and frozen > max(100_000, 10 * looked_through)
