"""What a reader of a run's numbers has to know beside them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kernelyard.campaign.analysis import WITH_THEIRS, Answers
from kernelyard.campaign.kernelbench_files import RESULTS, is_ours
from kernelyard.campaign.ledger import FILE_NAME
from kernelyard.campaign.opponents import Opponents
from kernelyard.campaign.outcomes import EAGER, baseline_of, comparable, has_compile
from kernelyard.campaign.records import places_of
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
        also = f", and with them {len(places)} problems that have no other" if places else ""
        yield f"{len(run.waiting)} solutions have no verdict yet: they are in no share{also}"


def _of_the_run(run: "Run", opponents: Opponents, suite: Suite | None) -> Iterable[str]:
    facts = run.facts
    for name in MUST_AGREE:
        if " and " in facts.get(name, ""):
            yield f"these verdicts are of unlike settings, and one number of them means little: {name} {facts[name]}"
    if count := run.unexported:
        yield f"{count} verdicts are not in {RESULTS} and KernelBench's line: `kernelyard run RUN --export` adds them"
    if run.judged and run.foreign:
        also = f", and with them {len(run.theirs)} problems" if run.theirs else ""
        where = " and KernelBench's line" if suite is None or suite.whole else ""
        yield (
            f"{len(run.foreign)} samples were judged by KernelBench alone{also}: they count in the numbers"
            f" `{WITH_THEIRS}`{where}, right by its tolerance and over stored means, and in no other;"
            " `kernelyard run RUN --again` judges them here"
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
        also = f", and with them {len(run.rewritten)} problems that have no other" if run.rewritten else ""
        yield f"{len(run.elsewhere)} verdicts are not of this suite, but of other texts of its problems: left out{also}"
    if run.judged:
        yield from _baseline_notes(run, opponents)


def _unshown(answers: Sequence[Answers]) -> Iterable[str]:
    gains = [outcome.gains.get(EAGER) for each in answers for outcome in each.counted]
    if count := sum(gain is not None and gain.measured is not None for gain in gains):
        yield f"{count} speedups above 1 are no ties, and the judge's own clock does not show them: they count as 1x"


def _baseline_notes(run: "Run", opponents: Opponents) -> Iterable[str]:
    if not opponents.ours:
        yield "nothing stands against min(eager, compile) without --baseline FOLDER of `kernelyard baseline`"
        return
    verdicts = [each.verdict for each in run.judged]
    found = [baseline_of(verdict, opponents.find) for verdict in verdicts]
    if missing := found.count(None):
        yield f"{missing} of {len(found)} verdicts have no baseline of the same problem text, dtype, mode and device"
    pairs = [(baseline, verdict) for baseline, verdict in zip(found, verdicts, strict=True) if baseline is not None]
    if unlike := sum(
        verdict.time is not None and not comparable(baseline, verdict.time.method) for baseline, verdict in pairs
    ):
        yield f"{unlike} verdicts were timed by another method than their baselines: they stand against eager alone"
    if untried := sum(not has_compile(baseline) for baseline, _ in pairs):
        yield f"{untried} verdicts have a baseline in which torch.compile was not tried: they stand against eager alone"
    others = {
        baseline.environment.torch
        for baseline, verdict in pairs
        if baseline.environment.torch != verdict.environment.torch
    }
    if others:
        yield f"baselines are of torch {' and '.join(sorted(others))}, verdicts of torch {run.facts['torch']}"
