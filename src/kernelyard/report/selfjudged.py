"""References judged against themselves, for a document: counts by level, and each that is not as it has to be."""

from collections.abc import Sequence
from statistics import median

from kernelyard.campaign.selfjudged import SelfJudged
from kernelyard.core.verdict import Timing, Verdict
from kernelyard.judge.decision import DEAF
from kernelyard.report.table import NOT_MEASURED, format_interval, format_ms, format_percent
from kernelyard.report.untrusted import visible
from kernelyard.suites.suite import Suite

LONGEST_REASON = 240
UNLIKE = 1.1
"""Times a call's 20th percentile: where the 80th is beyond that, few rounds do not tell 2 %."""
# A reference calls libraries.
OF_EVERY_REFERENCE = {"no_own_kernel"}


def self_judged_table(suite: Suite, found: Sequence[SelfJudged]) -> str:
    """Markdown: where and how, a line for each level, and a line for each reference that does not pass and tie."""
    verdicts = [each.verdict for each in found if each.verdict is not None]
    others = [each for each in found if not each.tied]
    parts = [_head(suite, verdicts)] if verdicts else []
    parts += [_counts(found), _others(others) if others else "All of them passed and are a tie."]
    return "\n\n".join(parts)


def _head(suite: Suite, verdicts: Sequence[Verdict]) -> str:
    """How they were judged, and where: a line for each machine and commit, with how many problems, where it is not one
    for all."""
    last = verdicts[-1]
    mode = "training" if last.train_mode else "eval"
    how = f"{last.dtype}, {mode} mode, policy {last.policy.value}; {suite.name}, suite {suite.sha256[:16]}"
    dates: dict[str, list[str]] = {}
    for verdict in verdicts:
        place, _, date = verdict.environment.line.rpartition(" · ")
        dates.setdefault(place, []).append(date)
    if len(dates) == 1:
        return f"On {last.environment.line}; {how}."
    lines = [
        f"- {len(when)} problem{'s' * (len(when) > 1)} on {place} · {_days(when)}"
        for place, when in sorted(dates.items(), key=lambda one: -len(one[1]))
    ]
    return "\n".join([f"In {how}:", "", *lines])


def _days(dates: Sequence[str]) -> str:
    first, last = min(dates)[:10], max(dates)[:10]
    return first if first == last else f"{first} to {last}"


def _counts(found: Sequence[SelfJudged]) -> str:
    lines = [
        "| level | problems | passed, a tie | passed, no tie | not passed | no verdict | noise floor: median, most |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for level in sorted({each.entry.level for each in found}):
        part = [each for each in found if each.entry.level == level]
        tied, passed = sum(each.tied for each in part), sum(each.passed for each in part)
        missing = sum(each.verdict is None for each in part)
        noise = [each.verdict.noise for each in part if each.verdict is not None and each.verdict.noise is not None]
        spread = f"{format_percent(100 * median(noise))}, {format_percent(100 * max(noise))}" if noise else NOT_MEASURED
        counts = (len(part), tied, passed - tied, len(part) - passed - missing, missing)
        lines.append(f"| {level} | {' | '.join(map(str, counts))} | {spread} |")
    return "\n".join(lines)


def _others(found: Sequence[SelfJudged]) -> str:
    lines = [
        "| problem | ending | speedup (95 %) | noise floor | a call | launches | why |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    return "\n".join(lines + [f"| {' | '.join(_cells(each))} |" for each in found])


def _cells(each: SelfJudged) -> tuple[str, ...]:
    name = each.entry.name.removesuffix(".py")
    title = f"{each.entry.level}/{name}" if each.entry.level else name
    verdict = each.verdict
    if verdict is None:
        return title, "no verdict", *4 * (NOT_MEASURED,), ""
    ending = verdict.status.value + (f", {verdict.decision.value}" if verdict.decision else "")
    loud = "too noisy to tell a tie" if (verdict.noise or 0.0) > DEAF else ""
    flags = [f"{flag.name}: {flag.evidence}" for flag in verdict.flags if flag.name not in OF_EVERY_REFERENCE]
    return (
        title,
        ending,
        format_interval(verdict.speedup, verdict.speedup_low, verdict.speedup_high),
        format_percent(None if verdict.noise is None else 100 * verdict.noise),
        format_ms(verdict.time.p50_ms) if verdict.time else NOT_MEASURED,
        str(verdict.evidence.launches) if verdict.evidence else NOT_MEASURED,
        "; ".join(_line(reason) for reason in (verdict.message, _unlike(verdict.time), loud, *flags) if reason),
    )


def _unlike(time: Timing | None) -> str:
    """That calls on inputs of one size take unlike times, by the problem or the host; else empty."""
    if time is None or time.p80_ms <= UNLIKE * time.p20_ms:
        return ""
    return f"its calls take {format_ms(time.p20_ms)} to {format_ms(time.p80_ms)} (20th to 80th percentile)"


def _line(text: str) -> str:
    """In one cell."""
    first = visible(text.strip().partition("\n")[0], LONGEST_REASON)
    return first.replace("|", "/").replace("<", "&lt;")
