"""What speaks against a stored baseline: samples that lie wide apart, a time far from that of a run's own rounds, and
in KernelBench's format, which names no text, a gain over it that hardly anybody has."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from kernelyard.campaign.analysis import Answers
from kernelyard.campaign.baselines import Baseline, Variant
from kernelyard.campaign.opponents import Opponents
from kernelyard.campaign.outcomes import EAGER, baseline_of, comparable
from kernelyard.campaign.records import Judged, Key
from kernelyard.core.plural import counted
from kernelyard.core.verdict import Timing
from kernelyard.judge.statistics import median

WIDE = 1.5
"""Times the 20th percentile of a variant's samples: an 80th beyond that is wide. Of 36 measurements on two cores, which
other programs used now and then, it was 1.04 to 1.24 in 12, 1.6 and 2.1 in two of 0.1 to 0.2 ms a call, and 8 to 114 in
22 (0508109 and 06adcff, 2026-11-25)."""
FAR = 1.25
"""Times, either way, between a stored time of eager and that of a run's rounds: from 0.8 to 1, the narrowest step
between two p of KernelBench's line, which divides the one by the other side's."""

HARDLY = 10.0
"""Times as fast as eager: what KernelBench calls an excessive speedup, and our judge looks at twice. The floor tells
less: of the 250 times in H100_Modal a dozen others are further above it than the stale one of 1/12, at 67 times."""
NAMED = 3
"""Problems, in one line."""


def wide(baselines: Iterable[Baseline]) -> str:
    """Says whose samples lie wide apart, the widest by name; empty where none do."""
    baselines = list(baselines)
    spreads = [(_spread(timing), each, variant) for each in baselines for variant, timing in each.times.items()]
    found = [one for one in spreads if one[0] > WIDE]
    if not found:
        return ""
    most, each, variant = max(found, key=lambda one: one[0])
    count = len({id(each) for _, each, _ in found})
    return (
        f"{count} of {counted(len(baselines), 'stored baseline')} may have been disturbed: samples lie wide apart, most"
        f" those of {each.level}/{each.problem_name}, {variant.value}, whose 80th percentile is {most:.3g} times the"
        f" 20th (up to {WIDE:g} is usual)"
    )


def _spread(timing: Timing) -> float:
    return timing.p80_ms / timing.p20_ms


@dataclass(frozen=True)
class _Pair:
    """Of one problem, in milliseconds."""

    title: str
    stored: float
    rounds: float

    @property
    def off(self) -> float:
        """How many times the longer one is the shorter one."""
        return max(self.stored / self.rounds, self.rounds / self.stored)


def far(judged: Sequence[Judged], opponents: Opponents, *, has_line: bool) -> str:
    """Says of how many problems the stored time of eager is far from what eager took beside the solutions; empty where
    of none. `has_line`: KernelBench's is printed, too."""
    pairs = _pairs(judged, opponents)
    found = [pair for pair in pairs if pair.off > FAR]
    if not found:
        return ""
    most = max(found, key=lambda pair: pair.off)
    line = "; KernelBench's line is off by as much" if has_line else ""
    return (
        f"of {len(found)} of {counted(len(pairs), 'problem')} the stored time of eager is more than {FAR:g} times off"
        f" what it took in the verdicts' own rounds, most of {most.title}: {most.stored:.3g} ms stored,"
        f" {most.rounds:.3g} ms in the rounds{line}"
    )


def _pairs(judged: Sequence[Judged], opponents: Opponents) -> list[_Pair]:
    found: dict[tuple[int, int], list[tuple[str, float, float]]] = {}
    for each in judged:
        timing = each.verdict.baseline
        if timing is None:
            continue
        title = f"{each.level}/{each.problem_name}"
        ours = baseline_of(each.verdict, opponents.find)
        stored, _ = opponents.mean_ms(each.level, each.problem_name)
        if ours is not None and comparable(ours, timing.method):
            one = (title, ours.times[Variant.EAGER].p50_ms, timing.p50_ms)
        elif ours is None and stored is not None:
            # KernelBench's files hold means.
            one = (title, stored, sum(timing.samples_ms) / len(timing.samples_ms))
        else:
            continue
        found.setdefault((each.level, each.problem), []).append(one)
    return [
        _Pair(samples[0][0], median([stored for _, stored, _ in samples]), median([rounds for *_, rounds in samples]))
        for samples in found.values()
    ]


def textless(answers: Sequence[Answers], ours: Collection[Key]) -> str:
    """Says that nobody knows the texts of times in KernelBench's format, and by name which gains over them are hardly
    to be believed; of our own samples none is, for eager was timed beside them."""
    gains: dict[str, float] = {}
    for each in answers:
        theirs = (outcome.gains.get(EAGER) for outcome in each.counted if outcome.key not in ours)
        if found := [gain.ratio for gain in theirs if gain is not None and gain.ratio > HARDLY]:
            gains[each.title] = max(found)
    largest = sorted(gains, key=lambda title: gains[title], reverse=True)
    named = ", ".join(f"{title} ({gains[title]:.3g}x)" for title in largest[:NAMED])
    more = f" and {len(largest) - NAMED} more" if len(largest) > NAMED else ""
    return (
        "stored times in KernelBench's format do not say of which text of a problem they are: where that has changed"
        " since, a gain over them is none" + (f"; above {HARDLY:g}x: {named}{more}" if largest else "")
    )
