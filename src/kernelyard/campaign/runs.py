"""A run as an analysis takes it: from its ledger, or from a folder that KernelBench left."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

from kernelyard.campaign.analysis import P_VALUES, WITH_THEIRS, Analysis, Answers, claims, group, groups
from kernelyard.campaign.candidates import files, keys, levels_of, readable_solution
from kernelyard.campaign.comparison import Side
from kernelyard.campaign.kernelbench_files import RESULTS, is_told, read, results_folder
from kernelyard.campaign.kernelbench_score import kernelbench_score
from kernelyard.campaign.ledger import FILE_NAME, Ledger
from kernelyard.campaign.notes import MUST_AGREE, notes, notes_on_stored
from kernelyard.campaign.opponents import Opponents
from kernelyard.campaign.outcomes import (
    EAGER,
    OPPONENTS,
    Method,
    Outcome,
    of_judged,
    of_kernelbench,
    opponents_beside,
)
from kernelyard.campaign.records import Foreign, Judged, Key, places_of
from kernelyard.core.errors import UsageError
from kernelyard.core.plural import counted
from kernelyard.core.problem import readable
from kernelyard.core.verdict import Verdict
from kernelyard.suites.suite import Entry, Suite

Results = Mapping[int, Sequence[Mapping[str, Any]]]
"""What eval_results.json holds: entries by problem."""

TRAINING = "training"
FACTS: dict[str, Callable[[Verdict], str | None]] = {
    "device": lambda verdict: verdict.environment.device_name,
    "dtype": lambda verdict: verdict.dtype,
    "mode": lambda verdict: TRAINING if verdict.train_mode else "eval",
    "timer": lambda verdict: verdict.baseline.timer if verdict.baseline else None,
    "cache": lambda verdict: verdict.baseline.cache if verdict.baseline else None,
    "torch": lambda verdict: verdict.environment.torch,
    "driver": lambda verdict: verdict.environment.driver,
    "policy": lambda verdict: verdict.policy.value,
    "sandbox": lambda verdict: verdict.sandbox.kind,
    "kernelyard": lambda verdict: verdict.environment.commit or verdict.environment.kernelyard,
}
"""What verdicts should have in common, those of MUST_AGREE at the least."""


@dataclass(frozen=True)
class Run:
    """A run's verdicts, or where it has none KernelBench's results."""

    folder: Path
    judged: tuple[Judged, ...]
    results: Mapping[int, Results]
    """eval_results.json of each level that has one."""
    foreign: tuple[Key, ...]
    """Beside verdicts: samples that KernelBench judged and nobody since."""
    suite_sha256: str | None
    """Of the suite that was asked for; None where that is not known, as of a run that was judged in parts."""
    elsewhere: tuple[Key, ...] = ()
    """Verdicts that `on` took out: of another text of their problem."""
    waiting: tuple[Key, ...] = ()
    """Solutions of which there is neither verdict nor result: the run was killed, or is under way."""

    def of(self, levels: Collection[int]) -> "Run":
        """Its part of those levels. Raises UsageError where there is none."""
        judged = tuple(each for each in self.judged if each.level in levels)
        results = {level: found for level, found in self.results.items() if level in levels}
        if not judged and not results:
            said = ", ".join(map(str, sorted(levels)))
            raise UsageError(f"{self.folder}: no verdict on level {said}; expected a level of the run")
        foreign, waiting = (tuple(key for key in some if key.level in levels) for some in (self.foreign, self.waiting))
        return replace(self, judged=judged, results=results, foreign=foreign, waiting=waiting)

    def on(self, suite: Suite) -> "Run":
        """Its verdicts on these very texts; KernelBench's results say not of which they are.

        Raises UsageError where there are verdicts, and none is.
        """
        texts = suite.texts
        there = [each for each in self.judged if (each.level, each.problem) in texts]
        kept = tuple(each for each in there if texts[each.level, each.problem] == each.verdict.problem_sha256)
        if self.judged and not kept:
            raise UsageError(
                f"{self.folder}: none of {len(self.judged)} verdicts is of this suite ({len(there)} are on other texts"
                f" of its problems, {len(self.judged) - len(there)} on other ones); expected the suite that was judged"
            )
        elsewhere = {each.key for each in there} - {each.key for each in kept}
        foreign = tuple(key for key in self.foreign if (key.level, key.problem) in texts)
        names = {place: entry.name for place, entry in suite.by_place.items()}
        return replace(
            self, judged=kept, foreign=foreign, elsewhere=tuple(sorted(elsewhere)), waiting=_waiting(self, names)
        )

    @property
    def unexported(self) -> int:
        """Verdicts that eval_results.json has not: of a run that was killed, or is under way."""
        told = {
            (level, problem, entry["sample_id"], *_verdict_of(entry))
            for level, results in self.results.items()
            for problem, entries in results.items()
            for entry in entries
        }
        ours = [
            (*astuple(each.key), each.verdict.solution_sha256, each.verdict.problem_sha256, each.verdict.status.value)
            for each in self.judged
            if is_told(each)
        ]
        return sum(each not in told for each in ours)

    @property
    def hardware(self) -> tuple[str, ...]:
        """The device that it ran on, where that is known; KernelBench's results may be of several."""
        if self.judged:
            return (self.judged[0].verdict.environment.device_name,)
        said = ((entry.get("metadata") or {}).get("hardware") for entry in self.entries)
        return tuple(sorted({str(name) for name in said if name}))

    @property
    def entries(self) -> list[Mapping[str, Any]]:
        """Those of its eval_results.json."""
        return [entry for level in self.results.values() for samples in level.values() for entry in samples]

    @cached_property
    def facts(self) -> dict[str, str]:
        """What its verdicts say of themselves, several where they differ; the device of KernelBench's results."""
        if not self.judged:
            return {"device": _several(self.hardware)} if self.hardware else {}
        found = {name: _several(fact(each.verdict) for each in self.judged) for name, fact in FACTS.items()}
        return {name: said for name, said in found.items() if said}

    @cached_property
    def methods(self) -> frozenset[Method]:
        """How its verdicts were timed."""
        return frozenset(each.verdict.baseline.method for each in self.judged if each.verdict.baseline)

    @cached_property
    def conditions(self) -> list[tuple[str, str, bool]]:
        """What baselines are found by beside a text: dtype, device, mode. A CPU with other threads is another one."""
        verdicts = (each.verdict for each in self.judged)
        return sorted({(one.dtype, one.environment.device_name, one.train_mode) for one in verdicts})

    @property
    def texts(self) -> dict[tuple[int, int], set[str]]:
        """SHA-256 of the texts that each problem's verdicts are on."""
        found: dict[tuple[int, int], set[str]] = {}
        for each in self.judged:
            found.setdefault((each.level, each.problem), set()).add(each.verdict.problem_sha256)
        return found

    @property
    def theirs(self) -> set[tuple[int, int]]:
        """Problems of which KernelBench's results are all there is, beside verdicts on others."""
        return places_of(self.foreign) - {(each.level, each.problem) for each in self.judged}

    @property
    def rewritten(self) -> set[tuple[int, int]]:
        """Problems of which all verdicts are on another text."""
        return places_of(self.elsewhere) - {(each.level, each.problem) for each in self.judged}


def _verdict_of(entry: Mapping[str, Any]) -> Iterator[str]:
    """What tells a verdict from the one before it, in an entry of eval_results.json."""
    said = entry.get("metadata") or {}
    return (str(said.get(name)) for name in ("solution_sha256", "problem_sha256", "status"))


def _several(values: Iterable[str | None]) -> str:
    return " and ".join(sorted({value for value in values if value is not None}))


def read_run(folder: Path, levels: Iterable[int] = ()) -> Run:
    """Raises UsageError for a folder with neither verdicts nor results.

    eval_results.json does not say of which level it is: the solutions' names do, or `levels`.
    """
    judged: list[Judged] = []
    foreign: list[Foreign] = []
    sha256 = None
    if (folder / FILE_NAME).exists():
        with Ledger(folder) as ledger:
            judged, foreign, sha256 = ledger.judged(), ledger.foreign(), ledger.meta("suite_sha256") or None
    known = {each.level for each in judged} | {each.level for each in foreign}
    known = known or levels_of(folder) or set(levels)
    paths = {level: results_folder(folder, level, known) / RESULTS for level in sorted(known)}
    results = {level: read(path) for level, path in paths.items() if path.is_file()}
    if not judged and not results:
        said = f"neither {FILE_NAME} with a verdict nor {RESULTS} of a known level"
        raise UsageError(f"{folder}: {said}; expected the folder of a run, or --level")
    alone = {one.key for one in foreign} - {one.key for one in judged} if judged else set[Key]()
    run = Run(folder, tuple(judged), results, tuple(sorted(alone)), sha256)
    return replace(run, waiting=_waiting(run))


def _waiting(run: Run, names: Mapping[tuple[int, int], str] | None = None) -> tuple[Key, ...]:
    told = {each.key for each in run.judged} | set(run.foreign)
    told |= {
        Key(level, problem, entry["sample_id"])
        for level, results in run.results.items()
        for problem, entries in results.items()
        for entry in entries
    }
    return tuple(sorted(keys(run.folder, names) - told))


def answers_of(run: Run, opponents: Opponents, suite: Suite | None, *, theirs: bool = False) -> list[Answers]:
    """Every problem of the suite, or of the run where no suite is given, with its samples.

    KernelBench's results are taken where there is no verdict at all, and beside verdicts with `theirs` alone: else a
    problem that has nothing else is left out, for it was answered and nobody here judged it. So is one whose verdicts
    are on another text, and one whose solutions wait for their verdict.
    """
    outcomes = [of_judged(each, opponents.find, run.methods) for each in run.judged]
    if theirs or not run.judged:
        outcomes += _foreign_outcomes(run, opponents, suite)
    by_place: dict[tuple[int, int], list[Outcome]] = {}
    for outcome in outcomes:
        by_place.setdefault(outcome.place, []).append(outcome)
    entries = {(entry.level, entry.number): entry for entry in suite.entries} if suite else {}
    waiting = places_of(run.waiting) - by_place.keys()
    unasked = run.theirs - by_place.keys()
    return [
        _answers(place, by_place.get(place, []), entries.get(place), run, opponents)
        for place in sorted(entries.keys() - unasked - run.rewritten - waiting if suite else by_place)
    ]


def _answers(
    place: tuple[int, int], outcomes: list[Outcome], entry: Entry | None, run: Run, opponents: Opponents
) -> Answers:
    if outcomes:
        # Of samples of unlike texts, or timed in unlike ways, some have nothing to stand against.
        known = tuple(each for each in OPPONENTS if all(each in outcome.opponents for outcome in outcomes))
    else:
        known = _opponents_of(entry, run, opponents) if entry else ()
    name = outcomes[0].name if outcomes else entry.name if entry else ""
    return Answers(*place, name, known, tuple(outcomes))


def _opponents_of(entry: Entry, run: Run, opponents: Opponents) -> tuple[str, ...]:
    """Of a problem that nobody answered."""
    if run.judged:
        known = (opponents.find(entry.source.sha256, *each) for each in run.conditions)
        return opponents_beside(next((one for one in known if one is not None), None), run.methods)
    eager, compiled = opponents.mean_ms(entry.level, entry.name)
    return OPPONENTS if None not in (eager, compiled) else (EAGER,) if eager is not None else ()


def _foreign_outcomes(run: Run, opponents: Opponents, suite: Suite | None) -> list[Outcome]:
    """KernelBench's results; beside verdicts those of samples that have none, and stored times for those of the
    verdicts' device."""
    found = []
    for level, results in run.results.items():
        names = names_of(level, run, opponents, suite)
        for number, entries in results.items():
            name = names.get(number, "")
            for entry in entries:
                key = Key(level, number, entry["sample_id"])
                if not run.judged or key in run.foreign:
                    said = (entry.get("metadata") or {}).get("hardware")
                    here = not run.judged or said in (None, *run.hardware)
                    times = opponents.mean_ms(level, name) if here else (None, None)
                    found.append(of_kernelbench(key, name, entry, *times))
    return found


def names_of(level: int, run: Run, opponents: Opponents, suite: Suite | None) -> dict[int, str]:
    """The files of a level by number: the suite's, else all that are known of, by name where one is."""
    if suite is not None:
        return {entry.number: entry.name for entry in suite.entries if entry.level == level}
    judged = {each.problem: each.problem_name for each in run.judged if each.level == level}
    return dict.fromkeys(run.results.get(level, ()), "") | opponents.names(level) | judged


def analyze(
    run: Run,
    opponents: Opponents,
    suite: Suite | None,
    degenerate: Mapping[tuple[int, int], str],
    p_values: Sequence[float] = P_VALUES,
    k_values: Sequence[int] = (1,),
) -> tuple[Analysis, list[Answers], dict[Key, str]]:
    """The numbers of a run, the problems that they are of, and the solutions' texts, where they are what was judged.

    Raises UsageError for baselines of another device.
    """
    opponents.fits(run.hardware)
    answers = answers_of(run, opponents, suite)
    sources = _sources_of(run, answers)
    scores = [
        kernelbench_score(
            results, file.level(level), names_of(level, run, opponents, suite), level, file.path, _unshown(run, level)
        )
        for level, results in run.results.items()
        for file in opponents.theirs
        if suite is None or suite.whole
    ]
    present = {(each.level, each.number): each for each in answers}
    sha256 = suite.sha256 if suite is not None else run.suite_sha256
    facts = run.facts | ({"suite": sha256[:16]} if sha256 else {})
    parts = groups(answers, degenerate, p_values, k_values)
    both = answers
    if run.judged and run.foreign:
        both = answers_of(run, opponents, suite, theirs=True)
        parts = (*parts, group(WITH_THEIRS, both, p_values, k_values))
    unknown = [f"no problem has {k} samples: pass@{k} is not known" for k in k_values if str(k) not in parts[0].pass_at]
    analysis = Analysis(
        run=readable(run.folder),
        suite_sha256=sha256,
        made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        settings=tuple(f"{name} {said}" for name, said in facts.items()),
        groups=parts,
        degenerate={present[place].title: why for place, why in sorted(degenerate.items()) if place in present},
        claims=claims(answers),
        kernelbench=tuple(scores),
        notes=(
            *notes(run, opponents, suite, answers),
            *notes_on_stored(run, opponents, suite, both),
            *_changed(run, answers, sources),
            *unknown,
        ),
    )
    return analysis, answers, sources


def _unshown(run: Run, level: int) -> set[int]:
    """Problems whose sample 0, the one that KernelBench's line counts, has a gain that is not shown."""
    verdicts = {each.problem: each.verdict for each in run.judged if each.level == level and each.sample == 0}
    return {number for number, verdict in verdicts.items() if verdict.is_unshown}


def _sources_of(run: Run, answers: Sequence[Answers]) -> dict[Key, str]:
    """The solutions' texts, where they are still what was judged; KernelBench kept no hash, there as they stand."""
    hashes = {each.key: each.verdict.solution_sha256 for each in run.judged}
    wanted = {outcome.key for each in answers for outcome in each.outcomes}
    found = {}
    for key, path in files(run.folder, _names(answers)):
        source = readable_solution(path) if key in wanted else None
        if key is not None and source is not None and hashes.get(key, source.sha256) == source.sha256:
            found[key] = source.text
    return found


def _changed(run: Run, answers: Sequence[Answers], sources: Mapping[Key, str]) -> Iterable[str]:
    judged = {each.key for each in run.judged} & keys(run.folder, _names(answers))
    if count := len(judged - sources.keys()):
        said = counted(count, "solution is no longer as it was", "solutions are no longer as they were")
        yield f"{said} judged: an old verdict counts until there is another"


def _names(answers: Sequence[Answers]) -> dict[tuple[int, int], str]:
    return {(each.level, each.number): each.name for each in answers}


def flagged(run: Run) -> dict[tuple[int, int], str]:
    """Problems that the judge itself found degenerate: another input's answer passed."""
    found = ((each, flag) for each in run.judged for flag in each.verdict.flags if flag.name == "degenerate_problem")
    return {(each.level, each.problem): flag.evidence for each, flag in found}


def side_of(run: Run, answers: Sequence[Answers]) -> Side:
    """The run as a comparison takes it."""
    facts = run.facts
    return Side(
        run=readable(run.folder),
        answers={(each.level, each.number): each for each in answers},
        hashes=run.texts,
        must_agree={name: facts[name] for name in MUST_AGREE if name in facts},
        should_agree={name: said for name, said in facts.items() if name not in MUST_AGREE},
    )
