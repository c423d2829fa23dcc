"""What a call launches is named, by a profiler or from a capture of the call, and what cannot be seen says why."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch

from kernelyard.core.launches import Unseen, launches
from kernelyard.core.policy import Policy
from kernelyard.core.problem import Source
from kernelyard.core.verdict import Status
from kernelyard.judge import evidence
from kernelyard.judge.evaluate import evaluate
from kernelyard.judge.findings import End, Findings
from kernelyard.judge.plan import Plan
from kernelyard.judge.timing import count_kernels
from kernelyard.sandbox.launch import choose
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.returned import Seen
from kernelyard.sandbox.session import Session
from kernelyard.suites.kernelbench import load_problem, read_solution

ROOT = Path(__file__).parents[2]
CUDA = torch.device("cuda", 0)
KERNEL = Source(Path("solution.py"), "import triton\n\n@triton.jit\ndef softmax(p_x):\n    pass\n")


class Worker:
    """A session that has seen what it is told."""

    device = CUDA

    def __init__(self, *names: str, unseen: str = "") -> None:
        self.seen = Seen(tuple((name, 1) for name in names), "callbacks", unseen)

    def launches(self, _: object) -> Seen:
        return self.seen


def collected(candidate: Worker, baseline: Worker, policy: Policy = Policy.STRICT) -> Findings:
    found = Findings(policy=policy)
    sides = cast(Session, candidate), cast(Session, baseline)
    evidence.collect(*sides, [], KERNEL, torch.float32, found)
    return found


def test_a_kernel_of_the_source_is_found_among_what_ran() -> None:
    library = "void at::native::softmax_warp_forward<float>(float*)"
    found = collected(Worker("softmax", "Memcpy"), Worker(library))
    assert found.evidence is not None and found.evidence.own == ("softmax",) and found.evidence.way == "callbacks"
    assert [kernel.name for kernel in found.evidence.baseline] == [library]
    with pytest.raises(End, match="no_own_kernel"):
        collected(Worker(library), Worker())


def test_what_ran_beside_a_kernel_of_the_source_is_shown() -> None:
    """A kernel that does nothing beside a library that does it all is the source's own, too."""
    library = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n"
    (flag,) = collected(Worker("softmax", library), Worker(library)).flags
    assert (flag.name, flag.evidence) == ("library_calls", f"beside its own softmax ran: {library}")
    assert not collected(Worker("softmax"), Worker(library)).flags
    assert not collected(Worker("softmax", library), Worker(library), Policy.EXPLORE).flags


def test_a_name_that_a_library_or_the_baseline_launched_is_nobodys_own() -> None:
    library, softmax = "void at::native::elementwise_kernel<128>(int)", "softmax"
    decoy = Source(
        Path("s.py"), KERNEL.text.replace("softmax", "at") + KERNEL.text.replace("softmax", "elementwise_kernel")
    )
    for source, ran, beside in ((decoy, library, "gemm"), (KERNEL, softmax, softmax)):
        found = Findings()
        sides = cast(Session, Worker(ran)), cast(Session, Worker(beside))
        evidence.collect(*sides, [], source, torch.float32, found)
        assert found.evidence is not None and not found.evidence.own
        assert [flag.name for flag in found.flags] == ["no_own_kernel"]


def test_what_cannot_be_seen_speaks_for_nobody_and_says_why() -> None:
    found = collected(Worker(unseen="it replays a graph"), Worker("softmax"))
    assert found.evidence is None and not found.flags and found.unseen == "it replays a graph"
    assert collected(Worker(), Worker("softmax")).unseen == "the worker names no kernel"


@pytest.mark.gpu
def test_kernels_are_named_and_counted(device: torch.device) -> None:
    x, y = torch.randn(1000, device=device), torch.empty(1000, device=device)
    seen = launches(lambda: torch.add(x, y), device)
    (name,) = seen.names
    assert seen.way == "callbacks" and name.startswith("void at::native::") and "float" in name, "demangled"
    assert len(launches(lambda: (x.exp(), x.sum()), device).names) == 2
    assert count_kernels(lambda: x.exp(), device) == 1


@pytest.mark.gpu
def test_it_does_not_matter_what_a_call_waits_for_or_where_it_runs(device: torch.device) -> None:
    x, stream = torch.randn(1000, device=device), torch.cuda.Stream()

    def call() -> float:
        with torch.cuda.stream(stream):
            y = x.exp()
        stream.synchronize()
        return (y + 1).sum().item()

    call()
    assert len(launches(call, device).names) == 3


@pytest.mark.gpu
def test_a_call_that_fails_leaves_no_subscriber_behind(device: torch.device) -> None:
    x = torch.randn(3, device=device)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="size of tensor"):
            launches(lambda: x + torch.randn(4, device=device), device)
    assert len(launches(lambda: x.exp(), device).names) == 1


@pytest.mark.gpu
def test_a_verdict_says_what_ran(device: torch.device) -> None:
    limits = Limits(memory_bytes=6 << 30)
    verdict = evaluate(
        load_problem(ROOT / "tests/exploits/problems/softmax.py"),
        read_solution(ROOT / "tests/exploits/honest/control.py"),
        device=device,
        dtype=torch.float32,
        sandbox=choose(None, str(device)),
        limits=limits,
        plan=replace(Plan(), rounds=4, most_rounds=4),
        policy=Policy.STRICT,
    )
    assert verdict.status is Status.PASSED, verdict.message
    assert verdict.evidence is not None, verdict.unseen
    assert verdict.evidence.own == ("softmax",)


@pytest.mark.gpu
def test_a_replay_is_seen_whole_or_not_at_all(device: torch.device) -> None:
    """The last test here: the profiler stays CUPTI's one subscriber in this process."""
    x = torch.randn(1000, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
        x.mul_(2)

    def call() -> None:
        graph.replay()
        x.exp()

    try:
        assert len(launches(call, device).names) == 3
    except Unseen as reason:
        assert "replays a CUDA graph" in str(reason)
