"""What became of each sample, as an analysis counts it: right or wrong, and how fast beside which opponent."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelyard.campaign.baselines import LEAST_MS, MOST_MS, Baseline, Variant
from kernelyard.campaign.intervals import product
from kernelyard.campaign.records import NO_VERDICT, Judged, Key
from kernelyard.core.verdict import Decision, Status, Verdict
from kernelyard.judge.decision import decide
from kernelyard.judge.statistics import Ratio

EAGER, BEST = "eager", "min(eager, compile)"
OPPONENTS = (EAGER, BEST)

Method = tuple[str, str]
"""Clock and cache: `Timing.method`."""
FindBaseline = Callable[[str, str, str, bool], Baseline | None]
"""By the problem's SHA-256, dtype, device name and training mode: `BaselineFolder.find`."""


@dataclass(frozen=True)
class Gain:
    """An opponent's time over the solution's, as it is credited."""

    ratio: float
    low: float | None = None
    high: float | None = None
    decision: Decision | None = None
    shown: bool = True
    """Not where the judge's own clock saw no gain: then it is above 1 in no share."""
    measured: "Gain | None" = None
    """Where none of that is credited."""
    told: float | None = None
    """By the worker's word, of a gain that the judge's own clock shows in part: `ratio` is that part."""

    @property
    def claimed(self) -> float:
        """The ratio by the worker's word: `ratio`, or more."""
        return self.measured.claimed if self.measured else self.told or self.ratio

    def above(self, p: float) -> bool:
        """Whether it is shown to be more than `p`."""
        return (self.ratio if self.shown else min(self.ratio, 1.0)) > p


@dataclass(frozen=True)
class Outcome:
    """One sample."""

    key: Key
    name: str
    status: str
    phase: str | None
    right: bool
    gains: Mapping[str, Gain] = field(default_factory=dict)
    """By opponent; of right samples that were timed."""
    opponents: tuple[str, ...] = (EAGER,)
    """Against whom its problem can be counted, right or wrong."""
    percent_of_floor: float | None = None
    eager_ms: float | None = None
    """Of eager: the median of the verdict's own rounds, or the mean that KernelBench stored."""
    time_ms: float | None = None
    """The solution's, likewise."""

    @property
    def counts(self) -> bool:
        """Whether it says anything of the solution."""
        return self.status not in NO_VERDICT

    @property
    def place(self) -> tuple[int, int]:
        """Its problem."""
        return self.key.level, self.key.problem


def of_judged(judged: Judged, find: FindBaseline, methods: Collection[Method]) -> Outcome:
    """A verdict of ours. Eager was timed in its own rounds; the faster of eager and compile comes from `find`.

    `methods`: by which its run was timed. A wrong answer has no time, and is counted where a right one were: with the
    right ones left out for their method, it would be all there is.
    """
    verdict = judged.verdict
    baseline = baseline_of(verdict, find)
    opponents = opponents_beside(baseline, [verdict.baseline.method] if verdict.baseline else methods)
    gains: dict[str, Gain] = {}
    if verdict.speedup is not None:
        gains[EAGER] = _over_eager(verdict, verdict.speedup)
        if baseline is not None and BEST in opponents:
            gains[BEST] = _over_best(gains[EAGER], verdict.noise or 0.0, baseline)
    return Outcome(
        key=judged.key,
        name=judged.problem_name,
        status=verdict.status.value,
        phase=verdict.phase.value if verdict.phase else None,
        right=verdict.status is Status.PASSED,
        gains=gains,
        opponents=opponents,
        percent_of_floor=_near_floor(verdict, gains.get(EAGER)),
        eager_ms=verdict.baseline.p50_ms if verdict.baseline else None,
        time_ms=verdict.time.p50_ms if verdict.time else None,
    )


def _near_floor(verdict: Verdict, gain: Gain | None) -> float | None:
    """Percent of the floor by the time that is credited: a claim that is not shown brings nobody nearer to it."""
    if verdict.percent_of_floor is None or gain is None or gain.measured is None:
        return verdict.percent_of_floor
    return verdict.percent_of_floor * gain.ratio / gain.measured.ratio


def baseline_of(verdict: Verdict, find: FindBaseline) -> Baseline | None:
    """The stored baseline of what was judged, as it was judged."""
    return find(verdict.problem_sha256, verdict.dtype, verdict.environment.device_name, verdict.train_mode)


def opponents_beside(baseline: Baseline | None, methods: Collection[Method]) -> tuple[str, ...]:
    """Against whom a problem counts that was timed by these methods, given its baseline."""
    if baseline is None or not has_compile(baseline):
        return (EAGER,)
    return OPPONENTS if all(comparable(baseline, method) for method in methods) else (EAGER,)


def has_compile(baseline: Baseline) -> bool:
    """Whether torch.compile was tried with Inductor: where it was and failed, eager is the faster of the two."""
    return bool(baseline.tried & {Variant.COMPILE, Variant.MAX_AUTOTUNE})


def comparable(baseline: Baseline, method: Method) -> bool:
    """Whether it was timed by that method, too."""
    return baseline.times[Variant.EAGER].method == method


def _over_eager(verdict: Verdict, speedup: float) -> Gain:
    """What was measured, or where less is credited, that."""
    shown = verdict.confirmed is not False
    gain = Gain(speedup, verdict.speedup_low, verdict.speedup_high, verdict.decision, shown, told=verdict.told)
    if verdict.credited is None or verdict.credited >= speedup:
        return gain
    return Gain(verdict.credited, decision=verdict.decision, shown=False, measured=gain)


def _over_best(gain: Gain, noise: float, baseline: Baseline) -> Gain:
    """The gain over eager, of paired rounds, times what the fastest variant takes of eager's time, interleaved.

    Each factor was measured within one stretch of time, so that neither holds the drift between the two.
    """
    best = baseline.best
    if best is Variant.EAGER:
        return gain
    over = baseline.gain(best)
    if gain.measured is not None:
        measured = _over_best(gain.measured, noise, baseline)
        # What falls short even as claimed is slower; a claim that is no more than as fast is not known to be.
        decision = Decision.SLOWER if measured.decision is Decision.SLOWER else Decision.INCONCLUSIVE
        return Gain(gain.ratio / over.mean, decision=decision, shown=False, measured=measured)
    ratio = product(
        Ratio(gain.ratio, gain.low or gain.ratio, gain.high or gain.ratio),
        Ratio(1 / over.mean, 1 / over.high, 1 / over.low),
    )
    told = gain.told / over.mean if gain.told else None
    if gain.low is None:
        return Gain(ratio.mean, shown=gain.shown, told=told)
    # The judge's own clock saw the gain over eager; what eager loses to the variant was timed in a trusted process.
    return Gain(ratio.mean, ratio.low, ratio.high, decide(ratio, noise, confirmed=gain.shown), gain.shown, told=told)


def of_kernelbench(
    key: Key, name: str, entry: Mapping[str, Any], eager_ms: float | None, compile_ms: float | None
) -> Outcome:
    """An entry of KernelBench's eval_results.json, beside stored means. No interval: it kept none."""
    right = entry["correctness"] is True
    runtime = entry["runtime"]
    best_ms = min(eager_ms, compile_ms) if eager_ms is not None and compile_ms is not None else None
    known = {opponent: ms for opponent, ms in ((EAGER, eager_ms), (BEST, best_ms)) if ms is not None}
    timed = right and LEAST_MS <= runtime <= MOST_MS
    return Outcome(
        key=key,
        name=name,
        status=kernelbench_status(entry),
        phase=None,
        right=right,
        gains={opponent: Gain(ms / runtime) for opponent, ms in known.items()} if timed else {},
        opponents=tuple(known),
        eager_ms=eager_ms,
        time_ms=runtime if timed else None,
    )


def kernelbench_status(entry: Mapping[str, Any]) -> str:
    """Ours that comes nearest to what KernelBench says."""
    said = entry.get("metadata") or {}
    if entry["correctness"] is True:
        return Status.PASSED.value
    if not entry["compiled"]:
        # `error` is of whoever waited for an evaluation; `other_error` and `cuda_error` of one that broke off.
        if "timed out" in str(said.get("error", "")):
            return Status.TIMEOUT.value
        broken = said.keys() & {"error", "cuda_error", "other_error"}
        return (Status.CRASHED if broken else Status.COMPILE_ERROR).value
    issue = str(said.get("correctness_issue", ""))
    if "shape" in issue.lower():
        return Status.INCORRECT_SHAPE.value
    if issue or "max_difference" in said:
        return Status.INCORRECT_VALUE.value
    return Status.RUNTIME_ERROR.value
