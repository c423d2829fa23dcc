"""Two runs on the same problems: which differences are real, and which a second try could turn round.

Everything is paired by problem, and asked many times at once: chances are Holm's, for the questions of the summary and
for the problems one by one.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from kernelyard.campaign.analysis import Answers, p_text
from kernelyard.campaign.intervals import LEVEL, bounds, geometric, holm, normal_p, product, sign_p, student_p
from kernelyard.campaign.outcomes import EAGER, OPPONENTS, Gain
from kernelyard.core.errors import UsageError
from kernelyard.core.plural import counted
from kernelyard.core.verdict import Record
from kernelyard.judge.decision import MARGIN
from kernelyard.judge.statistics import Ratio, paired_ratio

NORMAL95 = 1.96
_OF_TIMES = {"timer", "cache"}
"""What a run in which nothing was timed does not say: it can be compared by what is right."""
METHOD = (
    "paired by problem; shares by the exact sign test on the problems that differ (McNemar's where each has one"
    " sample), of as many samples as either run has, the first ones; speedups by Student's t on the logarithms of their"
    f" ratio, single problems by both verdicts' intervals and a margin of {100 * MARGIN:g} %; chances adjusted by Holm"
    " for the questions asked at once"
)


@dataclass(frozen=True)
class Side:
    """A run, as a comparison needs it."""

    run: str
    answers: Mapping[tuple[int, int], Answers]
    hashes: Mapping[tuple[int, int], Set[str]]
    """SHA-256 of each problem's texts; nothing for a run that kept none."""
    must_agree: Mapping[str, str]
    """Without these alike times are not comparable: device, dtype, timer, cache."""
    should_agree: Mapping[str, str]
    """Versions and policy: said where they differ."""


class Difference(Record):
    """One question about both runs."""

    what: str
    problems: int
    """Pairs that the answer rests on."""
    a: float | None
    b: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    """Of speedups: a over b, with its 95 % interval where that says anything."""
    only_a: int | None = None
    only_b: int | None = None
    """Of shares: problems on which that run does better."""
    chance: float
    """Of a difference as large if there were none; adjusted for the number of questions."""
    real: bool


class Comparison(Record):
    """What `kernelyard analyze --compare` says."""

    a: str
    b: str
    method: str = METHOD
    problems: int
    """In both."""
    answered: int
    """Of those: by both, with a sample at least that says something."""
    solved: int
    """Of those: right in both, with one sample at least."""
    left_out: dict[str, str]
    summary: tuple[Difference, ...]
    single: tuple[Difference, ...]
    """Of those that both solved, one by one: with one sample in each run, and an interval of its gain."""
    notes: tuple[str, ...]


def compare(a: Side, b: Side, p_values: Sequence[float], *, degenerate: Collection[tuple[int, int]] = ()) -> Comparison:
    """Raises UsageError where the runs' settings forbid it, or no problem is in both.

    `degenerate`: problems that count like any other here, and are named.
    """
    for name, said, other in _unlike(a.must_agree, b.must_agree):
        if name in _OF_TIMES and None in (said, other):
            continue
        raise UsageError(f"{a.run} and {b.run} cannot be compared: {name} {said} and {other}; expected the same")
    left_out = _left_out(a, b)
    places = sorted(place for place in a.answers.keys() & b.answers.keys() if _title(a, b, place) not in left_out)
    if not places:
        raise UsageError(f"{a.run} and {b.run} have no problem in common that both judged")
    pairs = [(a.answers[place], b.answers[place]) for place in places]
    usual = _usual(a), _usual(b)
    even = [_even(pair, usual) for pair in pairs]
    summary: list[Difference] = []
    for opponent in OPPONENTS:
        # To be right is to be so against nobody.
        asked = dict.fromkeys([0.0, *p_values]) if opponent == EAGER else [p for p in p_values if p]
        summary += [found for p in asked if (found := _shares(p, opponent, even))]
        if speeds := _speeds(opponent, pairs):
            summary.append(speeds)
    single = [found for one, other in pairs if (found := _problem(one, other))]
    solved = sum(all(side.right() for side in pair) for pair in pairs)
    unlike = [f"{name} differs: {said} and {other}" for name, said, other in _unlike(a.should_agree, b.should_agree)]
    return Comparison(
        a=a.run,
        b=b.run,
        problems=len(pairs),
        answered=sum(all(side.counted for side in pair) for pair in pairs),
        solved=solved,
        left_out=left_out,
        summary=_adjusted(summary, 0.0),
        single=_adjusted(single, MARGIN),
        notes=(*unlike, *_noted(a, b, places, solved - len(single), degenerate), *_cut(pairs, even)),
    )


def _noted(
    a: Side,
    b: Side,
    places: Sequence[tuple[int, int]],
    uncompared: int,
    degenerate: Collection[tuple[int, int]],
) -> Iterator[str]:
    if titles := [_title(a, b, place) for place in places if place in degenerate]:
        yield f"degenerate, and counted here: {', '.join(titles)}"
    if uncompared:
        said = counted(uncompared, "problem that both solved is", "problems that both solved are")
        yield f"{said} not compared one by one: several samples in a run, or a gain without an interval that counts"


def _cut(pairs: Sequence["_Pair"], even: Sequence["_Pair"]) -> Iterator[str]:
    """Else a share here would be taken for that of all samples."""
    fewer = sum(
        any(len(cut.outcomes) < len(side.counted) for side, cut in zip(*both, strict=True))
        for both in zip(pairs, even, strict=True)
    )
    if fewer:
        yield f"of {counted(fewer, 'problem')} a run has more samples than the other: shares here are of the first ones"


def _unlike(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[tuple[str, str | None, str | None]]:
    """What the two say differently, or only one of them says: the name and what either says."""
    for name in dict.fromkeys([*a, *b]):
        if a.get(name) != b.get(name):
            yield name, a.get(name), b.get(name)


def _left_out(a: Side, b: Side) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for place in sorted(a.answers.keys() | b.answers.keys()):
        sides = [(side.run, side.answers.get(place)) for side in (a, b)]
        missing = [run for run, answers in sides if answers is None]
        unjudged = [run for run, answers in sides if answers is not None and not answers.counts]
        if missing:
            reasons[_title(a, b, place)] = f"not in {missing[0]}"
        elif unjudged:
            reasons[_title(a, b, place)] = f"no verdict in {unjudged[0]}"
        elif place in a.hashes and place in b.hashes and len(a.hashes[place] | b.hashes[place]) > 1:
            reasons[_title(a, b, place)] = "the problem's text differs"
    return reasons


def _title(a: Side, b: Side, place: tuple[int, int]) -> str:
    answers = a.answers.get(place) or b.answers[place]
    return f"{answers.title} {answers.name}"


_Pair = tuple[Answers, Answers]


def _against(opponent: str) -> str:
    return "" if opponent == EAGER else f" against {opponent}"


def _shares(p: float, opponent: str, even: Sequence[_Pair]) -> Difference | None:
    """Of `even` pairs. None where no problem can be counted.

    Beside KernelBench's results that is one which no baseline has: it can be right, and neither faster nor slower.
    """
    pairs = [pair for pair in even if p == 0 or _have(opponent, pair)]
    if not pairs:
        return None
    shares = [(one.fast(opponent, p), other.fast(opponent, p)) for one, other in pairs]
    ups, downs = sum(a > b for a, b in shares), sum(a < b for a, b in shares)
    return Difference(
        what=f"fast_{p_text(p)}{_against(opponent)}",
        problems=len(pairs),
        a=sum(a for a, _ in shares) / len(pairs),
        b=sum(b for _, b in shares) / len(pairs),
        only_a=ups,
        only_b=downs,
        chance=sign_p(ups, downs),
        real=False,
    )


def _have(opponent: str, pair: _Pair) -> bool:
    return all(opponent in side.opponents for side in pair)


def _usual(side: Side) -> int:
    """How many samples of a problem a run has, at most."""
    return max((len(answers.counted) for answers in side.answers.values()), default=0)


def _even(pair: _Pair, usual: tuple[int, int]) -> _Pair:
    """As many samples of either as the other has: of one a share is 0 or 1, of ten a tenth or two, so that where one in
    five is right the run of ten would be the better one on most problems. Beside no answer, as many as that run has of
    other problems: `usual`."""
    count = min(len(side.counted) or most for side, most in zip(pair, usual, strict=True))
    one, other = pair
    return one.first(count), other.first(count)


def _speeds(opponent: str, pairs: Sequence[_Pair]) -> Difference | None:
    both = [(one.speedup(opponent), other.speedup(opponent)) for one, other in pairs]
    known = [(a, b) for a, b in both if a is not None and b is not None]
    if len(known) < 2:
        return None
    found = paired_ratio([a for a, _ in known], [b for _, b in known])
    low, high = bounds(found)
    return Difference(
        what=f"speedup where both are right{_against(opponent)}",
        problems=len(known),
        a=geometric([a for a, _ in known]),
        b=geometric([b for _, b in known]),
        ratio=found.mean,
        low=low,
        high=high,
        chance=student_p([math.log(a / b) for a, b in known]),
        real=False,
    )


def _problem(one: Answers, other: Answers) -> Difference | None:
    """Of a problem with one right sample in each run, by the intervals of the two speedups; else None."""
    gains = [_only_gain(side) for side in (one, other)]
    if gains[0] is None or gains[1] is None:
        return None
    a, b = (Ratio(gain.ratio, gain.low or gain.ratio, gain.high or gain.ratio) for gain in gains if gain)
    found = product(a, Ratio(1 / b.mean, 1 / b.high, 1 / b.low))
    spread = math.log(found.high / found.low) / 2 / NORMAL95
    return Difference(
        what=f"{one.title} {one.name}",
        problems=1,
        a=a.mean,
        b=b.mean,
        ratio=found.mean,
        low=found.low,
        high=found.high,
        chance=normal_p(math.log(found.mean) / spread) if spread else float(found.mean == 1),
        real=False,
    )


def _only_gain(answers: Answers) -> Gain | None:
    if len(answers.outcomes) != 1:
        return None
    gain = answers.outcomes[0].gains.get(EAGER)
    return gain if gain is not None and gain.low is not None and gain.high is not None else None


def _adjusted(differences: Sequence[Difference], margin: float) -> tuple[Difference, ...]:
    """Chances for all the questions at once; what is below the margin is nobody's gain, however sure."""
    chances = holm([each.chance for each in differences])
    return tuple(
        each.model_copy(
            update={
                "chance": chance,
                "real": chance < LEVEL and (each.ratio is None or abs(math.log(each.ratio)) > math.log1p(margin)),
            }
        )
        for each, chance in zip(differences, chances, strict=True)
    )
