"""A run as one HTML page that needs nothing but itself: numbers, speedups, every verdict with evidence and source.

Solutions, their messages and their kernels' names were written by strangers. The template escapes every value; the
page's one script is named by its hash in the page's policy, so that no other runs, and no request is allowed.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from kernelyard.campaign.analysis import Analysis, Answers
from kernelyard.campaign.outcomes import BEST, EAGER, Outcome
from kernelyard.campaign.records import Judged, Key
from kernelyard.core.plural import counted
from kernelyard.core.verdict import Verdict
from kernelyard.report import campaign
from kernelyard.report.campaign_drawings import drawings
from kernelyard.report.html import templates
from kernelyard.report.untrusted import visible
from kernelyard.report.verdict import gist

LONGEST_REASON = 120
"""Characters of the line that a closed row shows."""
LONGEST_SOURCE = 200_000
"""Characters; what a model writes has a twentieth of that."""


@dataclass(frozen=True)
class Row:
    """One sample of the table."""

    place: int
    """In the order of level, problem and sample: their numbers have no end, and JavaScript's have."""
    outcome: Outcome
    title: str
    degenerate: str | None
    verdict: Verdict | None
    """None where KernelBench judged it."""
    source: str | None
    """The solution's text; None where it is not at hand as it was judged."""

    @property
    def why(self) -> str:
        """What was said of a sample, in the line that shows while it is closed; nothing of one that passed."""
        said = gist(self.verdict.message) if self.verdict and not self.outcome.right else ""
        return said if len(said) <= LONGEST_REASON else said[:LONGEST_REASON] + "…"

    @property
    def keys(self) -> dict[str, str]:
        """What a click on a column sorts by: numbers and words; empty sorts last."""
        eager, best = (self.outcome.gains.get(opponent) for opponent in (EAGER, BEST))
        return {
            "problem": str(self.place),
            "status": f"{self.outcome.status} {self.outcome.phase or ''}",
            "eager": f"{eager.ratio:.6g}" if eager else "",
            "best": f"{best.ratio:.6g}" if best else "",
            "decision": eager.decision.value if eager and eager.decision else "",
            "floor": f"{self.outcome.percent_of_floor:.6g}" if self.outcome.percent_of_floor else "",
        }


def render(
    analysis: Analysis,
    answers: Sequence[Answers],
    judged: Sequence[Judged],
    sources: Mapping[Key, str],
    degenerate: Mapping[tuple[int, int], str],
) -> str:
    """The page as text; `sources` by sample, as they were judged."""
    verdicts = {each.key: each.verdict for each in judged}
    lines = (verdict.environment.line.rpartition(" · ")[0] for verdict in verdicts.values())
    samples = [(outcome, each.title) for each in answers for outcome in each.outcomes]
    rows = [
        Row(
            place,
            outcome,
            title,
            degenerate.get(outcome.place),
            verdicts.get(outcome.key),
            sources.get(outcome.key),
        )
        for place, (outcome, title) in enumerate(sorted(samples, key=lambda one: one[0].key))
    ]
    script = Path(__file__).with_name("campaign.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    made = templates()
    made.globals |= {name: getattr(campaign, name) for name in dir(campaign) if name.startswith("format_")}
    made.globals |= {
        "score_line": campaign.score_line,
        "source": _source,
        "counted": counted,
        "EAGER": EAGER,
        "BEST": BEST,
    }
    return made.get_template("campaign.html").render(
        analysis=analysis,
        drawings=drawings(answers),
        rows=rows,
        statuses=sorted({row.outcome.status for row in rows}),
        several=any(row.outcome.key.sample for row in rows),
        has_best=any(BEST in row.outcome.gains for row in rows),
        environments=list(dict.fromkeys(lines)),
        script=Markup(script),
        digest=digest,
    )


def _source(text: str) -> Markup:
    """A solution as it can be looked at: tabs as spaces, line ends of one kind, what hides spelled out, escaped."""
    return Markup.escape(visible(text.replace("\r\n", "\n").expandtabs(4), LONGEST_SOURCE))
