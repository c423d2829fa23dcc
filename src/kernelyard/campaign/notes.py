"""What a reader of a run's numbers has to know beside them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kernelyard.campaign.analysis import WITH_THEIRS, Answers, claims
from kernelyard.campaign.doubts import far, textless, wide
from kernelyard.campaign.kernelbench_files import RESULTS, is_ours
from kernelyard.campaign.ledger import FILE_NAME
from kernelyard.campaign.opponents import Opponents
from kernelyard.campaign.outcomes import EAGER, baseline_of, comparable, has_compile
from kernelyard.campaign.records import Key, places_of
from kernelyard.core.plural import counted
from kernelyard.suites.suite import Suite

if TYPE_CHECKING:
    from kernelyard.campaign.runs import Run

MUST_AGREE = ("device", "dtype", "mode", "timer", "cache")
"""Of a run's facts, those without which its verdicts are not one number's."""


def notes(run: "Run", opponents: Opponents, suite: Suite | None, answers: Sequence[Answers]) -> Iterable[str]:
    """A line for each thing that the numbers of these answers do not say themselves."""
    yield from _unfinished(run, answers)
    yield from _of_the_run(run, opponents, suite)
    yield from _unshown(answers)


def _unfinished(run: "Run", answers: Sequence[Answers]) -> Iterable[str]:
    if run.waiting:
        places = places_of(run.waiting) - {(each.level, each.number) for each in answers}
        also = f", and with that {_alone(len(places))}" if places else ""
        yield f"{counted(len(run.waiting), 'solution has', 'solutions have')} no verdict yet: in no share{also}"


def _alone(count: int) -> str:
    """So many problems of which nothing else is there."""
    return counted(count, "problem that has no other", "problems that have no other")


def _of_the_run(run: "Run", opponents: Opponents, suite: Suite | None) -> Iterable[str]:
    facts = run.facts
    for name in MUST_AGREE:
        if " and " in facts.get(name, ""):
            yield f"these verdicts are of unlike settings, and one number of them means little: {name} {facts[name]}"
    if count := run.unexported:
        said = counted(count, "verdict is", "verdicts are")
        yield f"{said} not in {RESULTS} and KernelBench's line: `kernelyard run RUN --export` writes all"
    if run.judged and run.foreign:
        also = f", and with that {counted(len(run.theirs), 'problem')}" if run.theirs else ""
        where = " and KernelBench's line" if suite is None or suite.whole else ""
        said = counted(len(run.foreign), "sample was", "samples were")
        yield (
            f"{said} judged by KernelBench alone{also}: in the numbers"
            f" `{WITH_THEIRS}`{where}, right by its tolerance and over stored means, and in no other;"
            " `kernelyard run RUN --again` judges all here"
        )
    if not run.judged and any(map(is_ours, run.entries)):
        yield f"judged by kernelyard, whose {FILE_NAME} is gone: what {RESULTS} keeps has no interval and no decision"
    elif not run.judged:
        yield "judged by KernelBench: right by its tolerance, speedups over stored means, no interval and no decision"
    if suite is None:
        yield "no suite was given: only problems with a sample count, and one that nobody answered is missed"
    elif not suite.whole and run.results and opponents.theirs:
        yield "KernelBench's definition is of whole levels: without its line, for a part of the suite was chosen"
    if suite is not None and run.suite_sha256 not in (None, suite.sha256):
        yield "the run was of another suite, or of other texts or another part of it: problems may be missed"
    if run.elsewhere:
        also = f", and with that {_alone(len(run.rewritten))}" if run.rewritten else ""
        said = counted(len(run.elsewhere), "verdict is", "verdicts are")
        yield f"{said} not of this suite, but of other texts of its problems: left out{also}"
    if run.judged:
        yield from _baseline_notes(run, opponents)
        if said := far(run.judged, opponents, has_line=_has_line(run, opponents, suite)):
            yield said


def _has_line(run: "Run", opponents: Opponents, suite: Suite | None) -> bool:
    """Whether there are numbers by KernelBench's definition."""
    return bool(run.results and opponents.theirs) and (suite is None or suite.whole)


def notes_on_stored(run: "Run", opponents: Opponents, suite: Suite | None, answers: Sequence[Answers]) -> Iterable[str]:
    """The same for what rests on times that KernelBench stored; what it alone judged is among these answers."""
    counting = [each for each in answers if each.counts]
    bare = sum(not each.opponents for each in counting)
    # Where nothing has a time, the table says so.
    if 0 < bare < len(counting):
        whose = " that KernelBench judged" if run.judged else ""
        said = counted(bare, f"problem{whose} has", f"problems{whose} have")
        yield f"{said} no time of eager to stand against: in no fast_p"
    ours = {each.key for each in run.judged}
    theirs = (outcome for each in answers for outcome in each.outcomes if outcome.key not in ours)
    # Of our verdicts the line alone does; a baseline that was found by its text is of that text in their files, too.
    found = run.judged and all(baseline_of(each.verdict, opponents.find) for each in run.judged)
    line = _has_line(run, opponents, suite) and (run.foreign or not found)
    if line or any(outcome.eager_ms is not None for outcome in theirs):
        yield textless(answers, ours)


def _unshown(answers: Sequence[Answers]) -> Iterable[str]:
    gains = [gain for each in answers for outcome in each.counted if (gain := outcome.gains.get(EAGER))]
    if unshown := sum(gain.measured is not None for gain in gains):
        said = counted(unshown, "speedup above 1 is no tie", "speedups above 1 are no ties")
        yield f"{said}, and the judge's own clock does not show a gain there: counted as 1x"
    if parts := [claim for claim in claims(answers) if claim.credited > 1]:
        said = counted(len(parts), "gain counts", "gains count")
        one = parts[0]
        first = Key(one.level, one.problem, one.sample)
        yield (
            f"{said} as far as the judge's own clock shows, which is less than is told; most of all {first},"
            f" {one.credited:.3g}x of {one.told:.3g}x"
        )


def _baseline_notes(run: "Run", opponents: Opponents) -> Iterable[str]:
    if not opponents.ours:
        yield "nothing stands against min(eager, compile) without --baseline FOLDER of `kernelyard baseline`"
        return
    verdicts = [each.verdict for each in run.judged]
    found = [baseline_of(verdict, opponents.find) for verdict in verdicts]
    if missing := found.count(None):
        yield f"without a baseline of the same problem text, dtype, mode and device: {missing} of {len(found)} verdicts"
    pairs = [(baseline, verdict) for baseline, verdict in zip(found, verdicts, strict=True) if baseline is not None]
    if unlike := sum(
        verdict.baseline is not None and not comparable(baseline, verdict.baseline.method)
        for baseline, verdict in pairs
    ):
        said = counted(unlike, "verdict was", "verdicts were")
        yield f"{said} timed by another method than the baseline: against eager alone"
    if untried := sum(not has_compile(baseline) for baseline, _ in pairs):
        said = counted(untried, "verdict has", "verdicts have")
        yield f"{said} a baseline in which torch.compile was not tried: against eager alone"
    others = {
        baseline.environment.torch
        for baseline, verdict in pairs
        if baseline.environment.torch != verdict.environment.torch
    }
    if said := wide({id(baseline): baseline for baseline, _ in pairs}.values()):
        yield said
    if others:
        yield f"baselines are of torch {' and '.join(sorted(others))}, verdicts of torch {run.facts['torch']}"
