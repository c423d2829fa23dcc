"""What the process of a slot keeps from one verdict to the next, and what it makes anew for each."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from verdicts import judged

from kernelyard.campaign import slot
from kernelyard.campaign.records import Key
from kernelyard.campaign.slot import Terms
from kernelyard.core import interpreter
from kernelyard.core.policy import Policy
from kernelyard.core.problem import Source
from kernelyard.core.verdict import Verdict
from kernelyard.judge import evaluate as evaluation
from kernelyard.judge.compiling import Build
from kernelyard.judge.floor import Remembered
from kernelyard.judge.plan import Plan
from kernelyard.sandbox import pool
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.launch import SandboxKind
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.pool import Post

TERMS = Terms("float32", SandboxKind.NATIVE, Limits(), Deadlines(), Plan(), Policy.TRAINING)


class Asked:
    """Both ends of a slot's pipe: what was asked of it is received, and its answers are kept."""

    def __init__(self, *questions: tuple[Any, Source, Build]) -> None:
        self._questions = list(questions)

    def recv(self) -> tuple[Any, Source, Build]:
        if not self._questions:
            raise EOFError
        return self._questions.pop(0)

    def send(self, _: object) -> None: ...


def problem(number: int, loaded: list[int]) -> Any:
    """An entry of a suite that notes when it is loaded."""
    return SimpleNamespace(source=Source(Path(f"{number}.py"), str(number)), load=lambda: loaded.append(number))


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> tuple[list[dict[str, Any]], list[tuple[Post, int]], list[int]]:
    """Four candidates to problems 1, 1, 2 and 1: what each was evaluated with, the pools made, what was loaded."""
    given: list[dict[str, Any]] = []
    pools: list[tuple[Post, int]] = []
    loaded: list[int] = []
    open_pools: list[object] = []

    def evaluate(problem: object, solution: Source, **more: Any) -> Verdict:
        assert more["pool"] in open_pools, "its workers had been ended, or nobody keeps any"
        given.append({"solution": solution, **more})
        return judged(Key(1, 1, 0)).verdict

    @contextmanager
    def kept(post: Post, size: int) -> Iterator[object]:
        pools.append((post, size))
        open_pools.append(made := object())
        yield made
        open_pools.remove(made)

    monkeypatch.setattr(evaluation, "evaluate", evaluate)
    monkeypatch.setattr(pool, "Pool", kept)
    monkeypatch.setattr(slot, "end_with_parent", lambda: None)
    monkeypatch.setattr(slot, "replace", lambda problem, **_: problem)
    monkeypatch.setattr(interpreter, "choose_for", lambda _: None)
    first, second = problem(1, loaded), problem(2, loaded)
    entries = (first, first, second, first)
    asked = Asked(*((each, Source(Path(f"s{i}.py"), str(i)), Build()) for i, each in enumerate(entries)))
    slot._serve(asked, "cpu", TERMS)  # type: ignore[arg-type]
    assert [one["solution"].text for one in given] == ["0", "1", "2", "3"] and not open_pools
    return given, pools, loaded


def test_workers_are_taken_from_one_pool_that_keeps_them_waiting(served: Any) -> None:
    given, pools, _ = served
    post = Post(TERMS.sandbox, TERMS.limits, "cpu")
    assert pools == [(post, post.ahead)] and post.ahead >= 2, "a verdict takes two"
    assert len({id(one["pool"]) for one in given}) == 1


def test_what_the_device_can_do_is_remembered(served: Any) -> None:
    given, _, _ = served
    assert all(isinstance(one["ceilings"], Remembered) for one in given)
    assert len({id(one["ceilings"]) for one in given}) == 1


def test_a_problem_is_loaded_once_for_all_that_follow_on_it(served: Any) -> None:
    _, _, loaded = served
    assert loaded == [1, 2, 1]
