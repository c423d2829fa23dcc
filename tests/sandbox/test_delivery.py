"""Answers of timed calls are in the judge's memory when its clock stops, or they do not count."""

import contextlib
from collections.abc import Iterator, Sequence

import pytest
import torch

from kernelyard.judge.plan import Plan
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.exchange import Ended
from kernelyard.sandbox.handing import halves
from kernelyard.sandbox.launch import choose
from kernelyard.sandbox.limits import Limits
from kernelyard.sandbox.pool import Post, Worker
from kernelyard.sandbox.returned import Ran
from kernelyard.sandbox.session import Session
from kernelyard.sandbox.wire import MOST_OUTPUTS, MOST_OWNERS, Manner, layout

TWO = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x[:, 0] > 0, 2 * x
"""
LONGER = TWO.replace("2 * x", "torch.cat([x, x])")
ANSWERS_EARLY = (
    """
import sys, time, torch

candidate = sys.modules["__main__"].Candidate
write = candidate._delivered

def early(self, **how):
    def notice(tell=self.notice):
        EARLIER
        tell()
        LATER
    self.notice = notice
    return write(self, **how)ALL

candidate._delivered = early
"""
    + TWO
)


def early(earlier: str = "", later: str = "", some: str = "") -> str:
    return ANSWERS_EARLY.replace("EARLIER", earlier).replace("LATER", later).replace("ALL", some)


WRITES_NOTHING = early(earlier="self.lent.poison()")
HANDS_OVER_LESS = early(some="[1:]")
SLOW_TO_HAND_OVER = early(earlier="time.sleep(0.3)")
SLOW_TO_DESCRIBE = early(later="time.sleep(0.3)")


WORKS_AHEAD = (
    """
import sys, time, torch

candidate = sys.modules["__main__"].Candidate
take = candidate._take

def ahead(self, request, shared):
    take(self, request, shared)
    time.sleep(0.3)

candidate._take = ahead
"""
    + TWO
)
IN_PLACE = TWO.replace("return x[:, 0] > 0, 2 * x", "return x[:, 0] > 0, x.mul_(2)")
KEPT = (2,)


@contextlib.contextmanager
def opened(source: str, device: torch.device) -> Iterator[Session]:
    post = Post(choose(None, str(device)), Limits(), str(device))
    with Session(Worker.start(post), device, Deadlines()) as session:
        session.await_start()
        session.load("solution.py", source, "ModelNew", [], 1, torch.float32, {})
        yield session


def ran(
    source: str,
    device: torch.device,
    sets: list[torch.Tensor],
    keep: Sequence[int] = KEPT,
    manner: Manner = Manner.BARE,
) -> Ran:
    with opened(source, device) as session:
        session.lend(answers(sets[0]), len(sets))
        one = session.run([[x] for x in sets], keep=keep, manner=manner)
        session.forget()
        return one


def answers(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:, 0] > 0, 2 * x


@pytest.fixture
def sets(device: torch.device) -> list[torch.Tensor]:
    return [torch.randn(33, 65, device=device) for _ in range(4)]


def test_one_call_of_a_run_is_kept_as_it_was_written(device: torch.device, sets: list[torch.Tensor]) -> None:
    (kept,) = ran(TWO, device, sets).kept
    expected = answers(sets[kept.index])
    fetched = kept.fetched(expected)
    assert kept.holds(expected) and fetched.tensors is not None
    assert all(torch.equal(got, wanted) for got, wanted in zip(fetched.tensors, expected, strict=True))
    assert [output.shape for output in fetched.outputs] == [(33,), (33, 65)]
    assert kept.fetched([expected[1], expected[0]]).tensors is None, "they are not like that"


@pytest.mark.parametrize("manner", [Manner.BARE, Manner.LATE])
def test_what_is_kept_and_what_is_fetched_say_how_they_hang_together(
    device: torch.device, sets: list[torch.Tensor], manner: Manner
) -> None:
    source = TWO.replace("x[:, 0] > 0, 2 * x", "[x[:, 0] > 0, x] + [x] * 20")
    like = [sets[0][:, 0] > 0, *[sets[0]] * 21]
    with opened(source, device) as session:
        session.lend(like, len(sets))
        (kept,) = session.run([[x] for x in sets], keep=KEPT, manner=manner).kept
        fetched = session.fetch(0, like)
    for outputs in (kept.outputs, fetched.outputs):
        assert {output.containers for output in outputs} == {(("list", 22),)}
        assert [output.memory_of for output in outputs[:3]] == [(), ("input[0]",), ("input[0]", "output[1]")]
        assert len(outputs[-1].memory_of) == MOST_OWNERS, "of many the first"


@pytest.mark.parametrize("manner", [Manner.BARE, Manner.LATE])
def test_a_parameter_is_handed_over_like_any_tensor_and_under_its_name(
    device: torch.device, sets: list[torch.Tensor], manner: Manner
) -> None:
    """A reference's costs the baseline what a solution's tensor costs; that it is none is the judge's to say."""
    (kept,) = ran(TWO.replace(", 2 * x", ", torch.nn.Parameter(2 * x)"), device, sets, manner=manner).kept
    assert kept.written and [output.kind for output in kept.outputs] == ["Tensor", "Parameter"]
    _, doubled = kept.fetched(answers(sets[kept.index])).tensors or ()
    assert torch.equal(doubled, 2 * sets[kept.index])


def test_what_is_written_after_the_answer_is_not_seen(device: torch.device, sets: list[torch.Tensor]) -> None:
    (kept,) = ran(WRITES_NOTHING, device, sets).kept
    _, doubled = kept.fetched(answers(sets[kept.index])).tensors or ()
    assert bool(doubled.isnan().all())


def test_an_answer_larger_than_its_room_is_described_and_not_written(
    device: torch.device, sets: list[torch.Tensor]
) -> None:
    (kept,) = ran(LONGER, device, sets).kept
    assert not kept.written and kept.outputs[1].shape == (66, 65)
    longer = (torch.ones(33, dtype=torch.bool), torch.ones(66, 65))
    assert not kept.holds(longer)


def test_a_run_without_all_of_its_answers_breaks_the_protocol(device: torch.device, sets: list[torch.Tensor]) -> None:
    with pytest.raises(Ended, match="the outputs of 3 calls of 4"):
        ran(HANDS_OVER_LESS, device, sets)


def test_handing_over_is_within_the_clock_and_in_no_sample(device: torch.device, sets: list[torch.Tensor]) -> None:
    one = ran(SLOW_TO_HAND_OVER, device, sets)
    assert one.seconds > 0.3
    assert all(host < 200 for _, host in one.samples)


def test_what_is_described_when_all_is_written_is_not_on_the_clock(
    device: torch.device, sets: list[torch.Tensor]
) -> None:
    """Of what a request costs that holds a call on a CPU it is a quarter."""
    one = ran(SLOW_TO_DESCRIBE, device, sets)
    assert one.seconds < 0.3 and one.kept[0].written


def test_inputs_come_within_the_clock(device: torch.device, sets: list[torch.Tensor]) -> None:
    """What a worker does with them before its first call would else be on nobody's clock."""
    one = ran(WORKS_AHEAD, device, sets)
    assert one.seconds > 0.3
    assert all(host < 200 for _, host in one.samples)


def test_what_a_call_writes_to_its_input_stays_in_its_worker(device: torch.device, sets: list[torch.Tensor]) -> None:
    before = [x.clone() for x in sets]
    (kept,) = ran(IN_PLACE, device, sets).kept
    _, doubled = kept.fetched(answers(sets[kept.index])).tensors or ()
    assert torch.equal(doubled, 2 * before[kept.index])
    assert all(torch.equal(x, y) for x, y in zip(sets, before, strict=True))


@pytest.mark.parametrize("manner", Manner)
def test_a_call_answers_alike_in_every_manner(device: torch.device, sets: list[torch.Tensor], manner: Manner) -> None:
    one = ran(TWO, device, sets, manner=manner)
    (kept,) = one.kept
    expected = answers(sets[kept.index])
    got = kept.fetched(expected).tensors
    assert got is not None and all(map(torch.equal, got, expected)) and len(one.samples) == len(sets)


@pytest.mark.parametrize("shape", [(), (1,), (1, 5, 2), (4,), (0, 3), (7, 3)])
def test_the_halves_of_an_output_lie_where_it_lies(shape: tuple[int, ...]) -> None:
    whole = torch.randn(shape)
    (spec,), _ = layout([whole], 64)
    memory = torch.full((whole.numel() + 16,), float("nan"))
    for part, tensor in halves(spec, whole):
        assert part.shape == tensor.shape
        memory[part.offset // 4 :][: tensor.numel()] = tensor.reshape(-1)
    assert torch.equal(memory[16:], whole.reshape(-1))


SIDE_STREAM = """
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        if not hasattr(self, "stream"):
            self.stream = torch.cuda.Stream()
        y = torch.empty_like(x)
        positive = x[:, 0] > 0
        WAIT
        with torch.cuda.stream(self.stream):
            torch.mul(x, 2, out=y)
        JOIN
        return positive, y
"""
WAIT, JOIN = (
    "self.stream.wait_stream(torch.cuda.current_stream())",
    "torch.cuda.current_stream().wait_stream(self.stream)",
)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("wait", "join", "right"), [(WAIT, JOIN, True), ("", JOIN, False), (WAIT, "", False), ("", "", False)]
)
def test_a_late_call_shows_a_stream_that_is_not_joined(device: torch.device, wait: str, join: str, right: bool) -> None:
    """Of tens of microseconds: what is read at once is then not yet written, in one of four calls at least. Beside
    other tests on the same GPU one was written in time.

    Another comes first, as in an evaluation: to make a stream and to load a kernel takes longer than the work that the
    late call stands behind. The current stream has nothing to do meanwhile: with a kernel of its own behind the other's
    blocks all was written when that was done, on an H200, and the call's own time was no shorter.
    """
    source = SIDE_STREAM.replace("WAIT", wait).replace("JOIN", join)
    written = []
    with opened(source, device) as session:
        session.run([[torch.randn(8192, 1024, device=device)] for _ in range(2)])
        for _ in range(4):
            x = torch.randn(8192, 1024, device=device)
            expected = answers(x)
            session.lend(expected, 1)
            (kept,) = session.run([[x]], keep=(0,), manner=Manner.LATE).kept
            got = kept.fetched(expected).tensors
            assert got is not None
            written.append(torch.equal(got[1], expected[1]))
    assert all(written) is right


@pytest.mark.gpu
def test_calls_that_follow_each_other_are_not_waited_for_one_by_one(device: torch.device) -> None:
    """Of calls of a fifth of a millisecond each is launched while another runs; all are done when the clock stops."""
    sets = [torch.randn(8192, 8192, device=device) for _ in range(4)]
    with opened(TWO, device) as session:
        session.run([[x] for x in sets])
        streamed, bare = (session.run([[x] for x in sets], manner=way) for way in (Manner.STREAMED, Manner.BARE))
    launched, waited = (min(host for _, host in one.samples) for one in (streamed, bare))
    assert launched < waited / 2


WHERE_IT_WORKS = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x[:, 0] > 0, torch.full_like(x, torch.empty(16 << 20, device=x.device).data_ptr() // 2**21 % 2**23)
"""


@pytest.mark.gpu
def test_memory_is_laid_elsewhere_when_the_judge_asks_for_it(device: torch.device) -> None:
    """By 2 MiB, so many that a float32 tells them apart; between requests without that nothing moves."""
    x = torch.randn(33, 65, device=device)

    def places(session: Session, scattered: bool) -> list[float]:
        found = []
        for _ in range(8):
            if scattered:
                session.scatter()
            session.lend(answers(x), 1)
            (kept,) = session.run([[x]], keep=[0], manner=Manner.BARE).kept
            _, where = kept.fetched(answers(x)).tensors or (x, x)
            found.append(where.mean().item())
        return found

    with opened(WHERE_IT_WORKS, device) as session:
        assert len(set(places(session, scattered=False)[1:])) == 1
        assert len(set(places(session, scattered=True))) > 2


MANY = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.unbind(0)
"""


def test_the_longest_request_may_have_hundreds_of_answers_a_call() -> None:
    """An honest worker was gone: what it had to say of 32 calls on a GPU was more than a frame held."""
    x = torch.randn(1024, 4)
    calls = Plan().calls_bare(2 * x.nbytes, 0.01)
    assert calls == Plan().bare_calls and len(x) == MOST_OUTPUTS
    with opened(MANY, torch.device("cpu")) as session:
        session.lend(x.unbind(0), calls)
        ran = session.run([[x.clone()] for _ in range(calls)], manner=Manner.STREAMED, keep=[0])
        assert len(ran.samples) == calls
