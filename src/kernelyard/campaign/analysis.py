"""The numbers of a run, each with its interval, against eager and against the faster of eager and torch.compile.

A problem counts once. With several samples it counts with the share of them that are right, or right and faster than p,
which is what one sample drawn at random is worth. Shares have Clopper and Pearson's exact interval, geometric means
Student's t on the logarithms; both take the problems for a sample of all that could have been asked.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from kernelyard.campaign.intervals import WIDEST, Mean, Share, any_right, geometric, mean, share
from kernelyard.campaign.kernelbench_score import KernelBenchScore
from kernelyard.campaign.outcomes import EAGER, OPPONENTS, Outcome
from kernelyard.core.verdict import Decision, Record

Holds = Callable[[Outcome], bool]
P_VALUES = (0.0, 1.0, 2.0)
WITH_THEIRS = "with KernelBench's"
"""The group in which samples count, too, that KernelBench alone judged."""
METHOD = (
    "95 % intervals: shares by Clopper and Pearson (exact binomial), geometric means by Student's t on logarithms, over"
    f" problems; none where it would reach further than {WIDEST:g} times either way"
)


@dataclass(frozen=True)
class Answers:
    """A problem, and what became of its samples; of none where nobody answered it."""

    level: int
    number: int
    name: str
    opponents: tuple[str, ...]
    """Against whom it can be counted."""
    outcomes: tuple[Outcome, ...]

    @property
    def counted(self) -> list[Outcome]:
        """The samples that say something."""
        return [outcome for outcome in self.outcomes if outcome.counts]

    @property
    def counts(self) -> bool:
        """Whether it is in the shares: a problem without an answer is, one that the machine failed is not."""
        return not self.outcomes or bool(self.counted)

    @property
    def title(self) -> str:
        return f"level {self.level} problem {self.number}" if self.level else f"problem {self.number}"

    def first(self, count: int) -> "Answers":
        """The problem with so many of the samples that say something."""
        return replace(self, outcomes=tuple(sorted(self.counted, key=lambda outcome: outcome.key)[:count]))

    def right(self) -> float:
        """The share of its samples that are right."""
        return _part(self.counted, lambda outcome: outcome.right)

    def fast(self, opponent: str, p: float) -> float:
        """The share of its samples that are right and shown to be more than `p` times as fast; at 0, that are right."""
        if p == 0:
            return self.right()
        return _part(self.counted, lambda outcome: opponent in outcome.gains and outcome.gains[opponent].above(p))

    def faster(self, opponent: str) -> float:
        """The share of its samples that were found faster: the interval of their speedup clears margin and noise."""
        return _part(
            self.counted,
            lambda outcome: opponent in outcome.gains and outcome.gains[opponent].decision is Decision.FASTER,
        )

    def speedup(self, opponent: str) -> float | None:
        """The geometric mean over its right samples; None where none was timed."""
        ratios = [outcome.gains[opponent].ratio for outcome in self.counted if opponent in outcome.gains]
        return geometric(ratios) if ratios else None

    def told(self, opponent: str) -> float | None:
        """The same by their workers' word."""
        ratios = [outcome.gains[opponent].claimed for outcome in self.counted if opponent in outcome.gains]
        return geometric(ratios) if ratios else None


def p_text(p: float) -> str:
    """`1`, `1.5`, `0.9999999`: no two of them alike."""
    short = f"{p:g}"
    return short if float(short) == p else str(p)


def _part(outcomes: Sequence[Outcome], holds: Holds) -> float:
    return sum(map(holds, outcomes)) / len(outcomes) if outcomes else 0.0


class Against(Record):
    """The run beside one opponent."""

    opponent: str
    problems: int
    """With a time of the opponent; only these count here."""
    untimed: int
    """Right samples without a time: in fast_0 alone."""
    fast: dict[str, Share]
    """fast_p by p."""
    faster: Share | None
    """The same by decisions; null where not every time has one, as KernelBench's results have none."""
    speedup: Mean | None
    """Over problems with a right sample that was timed."""
    told: Mean | None = None
    """The same by the workers' word; null where that is what is credited."""


class Ending(Record):
    """A status, and where in the protocol it was reached."""

    status: str
    phase: str | None
    samples: int
    problems: int


class Group(Record):
    """Problems counted together."""

    name: str
    problems: int
    unanswered: int
    """Without any sample; they count as wrong."""
    left_out: tuple[str, ...]
    """Problems whose every sample ended in `infra_error` or `invalid_problem`."""
    samples: int
    pass_at: dict[str, Share]
    """pass@k by k, of the problems with k samples or more: the unbiased estimator of HumanEval."""
    against: tuple[Against, ...]
    endings: tuple[Ending, ...]
    floor: Mean | None
    """Geometric mean of floor over time: 1 is the speed of light."""


class Claim(Record):
    """A sample of which less is credited than its worker tells: no more than the judge's own clock shows."""

    level: int
    problem: int
    sample: int
    told: float
    """Speedup over eager."""
    credited: float


class Analysis(Record):
    """What `kernelyard analyze` says of a run."""

    run: str
    made: str
    """UTC, ISO 8601."""
    suite_sha256: str | None
    """Of every problem that was asked; of the run's own suite where none was given, null where that is not known."""
    method: str = METHOD
    settings: tuple[str, ...]
    """What the verdicts have in common, and what they have not."""
    groups: tuple[Group, ...]
    degenerate: dict[str, str]
    """Problems that cannot tell a right answer from a wrong one, and why."""
    claims: tuple[Claim, ...] = ()
    """The largest part that is not credited first."""
    kernelbench: tuple[KernelBenchScore, ...]
    """By KernelBench's own definition."""
    notes: tuple[str, ...]


def groups(
    answers: Sequence[Answers],
    degenerate: Mapping[tuple[int, int], str],
    p_values: Sequence[float] = P_VALUES,
    k_values: Sequence[int] = (1,),
) -> tuple[Group, ...]:
    """All problems; those of each level where there are several; all but the degenerate ones where there are any."""
    levels = sorted({each.level for each in answers})
    parts = {"all": list(answers)}
    if len(levels) > 1:
        parts |= {f"level {level}": [each for each in answers if each.level == level] for level in levels}
    if sound := [each for each in answers if (each.level, each.number) not in degenerate]:
        parts |= {"without degenerate": sound} if len(sound) < len(answers) else {}
    return tuple(group(name, part, p_values, k_values) for name, part in parts.items())


def group(name: str, answers: Sequence[Answers], p_values: Sequence[float], k_values: Sequence[int]) -> Group:
    """The numbers of some problems."""
    counted = [each for each in answers if each.counts]
    outcomes = [outcome for each in answers for outcome in each.outcomes]
    opponents = [opponent for opponent in OPPONENTS if any(opponent in each.opponents for each in counted)]
    return Group(
        name=name,
        problems=len(counted),
        unanswered=sum(not each.outcomes for each in counted),
        left_out=tuple(each.title for each in answers if not each.counts),
        samples=len(outcomes),
        pass_at={str(k): found for k in k_values if (found := _pass_at(counted, k))},
        against=tuple(_against(counted, opponent, p_values) for opponent in opponents),
        endings=_endings(outcomes),
        floor=mean([near for each in counted if (near := _floor(each)) is not None], most=1.0),
    )


def claims(answers: Sequence[Answers]) -> tuple[Claim, ...]:
    """The samples of which less is credited than told."""
    found = [
        Claim(**asdict(outcome.key), told=gain.claimed, credited=gain.ratio)
        for each in answers
        for outcome in each.counted
        if (gain := outcome.gains.get(EAGER)) and gain.claimed > gain.ratio
    ]
    return tuple(sorted(found, key=lambda claim: claim.credited / claim.told))


def _against(answers: Sequence[Answers], opponent: str, p_values: Sequence[float]) -> Against:
    known = [each for each in answers if opponent in each.opponents]
    timed = [outcome.gains[opponent] for each in known for outcome in each.counted if opponent in outcome.gains]
    right = sum(outcome.right for each in known for outcome in each.counted)
    fast = {p_text(p): share(sum(each.fast(opponent, p) for each in known), len(known)) for p in p_values}
    decided = bool(timed) and all(gain.decision for gain in timed)
    speedup, told = (
        mean([ratio for each in known if (ratio := of(each, opponent)) is not None])
        for of in (Answers.speedup, Answers.told)
    )
    return Against(
        opponent=opponent,
        problems=len(known),
        untimed=right - len(timed),
        fast={p: found for p, found in fast.items() if found},
        faster=share(sum(each.faster(opponent) for each in known), len(known)) if decided else None,
        speedup=speedup,
        told=told if told != speedup else None,
    )


def _pass_at(answers: Sequence[Answers], k: int) -> Share | None:
    if k > max([1, *(len(each.counted) for each in answers)]):
        return None
    known = [each for each in answers if not each.outcomes or len(each.counted) >= k]
    right = [(len(each.counted), sum(outcome.right for outcome in each.counted)) for each in known]
    return share(sum(any_right(max(total, k), good, k) for total, good in right), len(known))


def _floor(answers: Answers) -> float | None:
    shares = [outcome.percent_of_floor / 100 for outcome in answers.counted if outcome.percent_of_floor]
    return geometric(shares) if shares else None


def _endings(outcomes: Sequence[Outcome]) -> tuple[Ending, ...]:
    found = Counter((outcome.status, outcome.phase) for outcome in outcomes)
    places = {
        ending: {outcome.place for outcome in outcomes if (outcome.status, outcome.phase) == ending} for ending in found
    }
    return tuple(
        Ending(status=status, phase=phase, samples=count, problems=len(places[status, phase]))
        for (status, phase), count in found.most_common()
    )
