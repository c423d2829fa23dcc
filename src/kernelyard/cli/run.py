"""`kernelyard run RUN_DIR`: judge a folder of solutions to the problems of a suite."""

import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column

from kernelyard.campaign.candidates import LAYOUTS, Found, demand_folder, find, levels_of
from kernelyard.campaign.kernelbench_files import RESULTS, export, foreign_outcomes
from kernelyard.campaign.ledger import FILE_NAME, Ledger
from kernelyard.campaign.pipeline import Pipeline
from kernelyard.campaign.records import Candidate, Judged, Key, Settings
from kernelyard.campaign.runs import read_run
from kernelyard.campaign.slot import Terms
from kernelyard.core.amounts import MOST_JOBS, MOST_ROUNDS, MOST_SECONDS, gib_option, parse_seconds, seconds_option
from kernelyard.core.choices import choice_option
from kernelyard.core.cores import usable_cores
from kernelyard.core.environment import describe, resolve_devices
from kernelyard.core.errors import UsageError
from kernelyard.core.plural import counted
from kernelyard.core.policy import Policy
from kernelyard.core.verdict import Phase, Status
from kernelyard.core.workload import parse_dtype
from kernelyard.judge.compiling import builds
from kernelyard.judge.plan import Plan
from kernelyard.report.untrusted import visible
from kernelyard.report.verdict import gist
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.launch import SandboxKind, choose
from kernelyard.sandbox.limits import GIB, Limits
from kernelyard.suites.selection import Selection, with_selection
from kernelyard.suites.suite import Suite

# Of a run's cores, those that a slot's judge and its two workers need to themselves: a starved clock costs rounds.
CORES_A_SLOT = 2
# Of a phase.
LEAST_SECONDS = 0.1
PHASES = (Phase.COMPILE.value, Phase.LOAD.value, Phase.CHECK.value, Phase.TIME.value)
# With spaces, so that a terminal of 80 columns folds it and does not cut it.
DEFAULT_DEADLINES = ", ".join(f"{name}={getattr(Deadlines(), name):g}" for name in PHASES)
TIMEOUT_HELP = f"Of every phase, or of some, as in compile=300,check=60; by default {DEFAULT_DEADLINES}."


class Retry(str, Enum):
    """Endings that another attempt may change: the machine's faults, and deadlines that were too short."""

    INFRA_ERROR = Status.INFRA_ERROR.value
    TIMEOUT = Status.TIMEOUT.value


@with_selection
def run(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="RUN_DIR", help="Solutions, by KernelBench's names or PROBLEM/S.py.")
    ],
    selection: Selection,
    dtype: Annotated[str, typer.Option(help="fp32, bf16 or fp16: of weights and floating-point inputs.")] = "fp32",
    train: Annotated[bool, typer.Option("--train", help="In training mode, as KernelBench does it.")] = False,
    policy: Annotated[Policy, typer.Option(help="What is done about flags.")] = Policy.TRAINING,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=MOST_JOBS, help="Builds at a time; by default the cores that are left.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, max=MOST_JOBS, help="How many devices; by default all. On a CPU, judges.")
    ] = None,
    timeout: Annotated[str | None, typer.Option(metavar="<seconds>", help=TIMEOUT_HELP)] = None,
    memory: Annotated[float, gib_option(0.1, "GiB of host memory for a solution's processes.")] = 16.0,
    rounds: Annotated[
        int, typer.Option(min=3, max=MOST_ROUNDS, help="Timed rounds at least; the first is a warm-up.")
    ] = 9,
    budget: Annotated[float, seconds_option(0.0, "Seconds of timing while the interval is wide.")] = 10.0,
    sandbox: Annotated[
        SandboxKind | None,
        choice_option(SandboxKind.NONE, "a run has no unsafe way", "By default the strongest that runs here."),
    ] = None,
    retry: Annotated[
        list[Retry] | None, typer.Option(metavar="<endings>", help="Judge again what ended so: infra_error,timeout.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Judge also what KernelBench has an outcome of.")] = False,
    only_export: Annotated[bool, typer.Option("--export", help="Judge nothing; write KernelBench's files.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1; by default what is there.")] = None,
) -> None:
    """Judge every solution in RUN_DIR; what has its verdict is not judged again.

    Exit code 0 if all have one, whatever it says; 1 if some could not be judged.
    """
    if only_export:
        _demand_nothing_else(context)
        with Ledger(folder) as ledger:
            _take_over(ledger, folder, levels_of(folder))
            if not (ledger.judged() or ledger.foreign()):
                raise UsageError(f"{folder}: no verdict to export; `kernelyard run` without --export makes them")
            _export(folder, ledger)
        return
    deadlines = _deadlines(timeout)
    devices = resolve_devices(device, gpus)
    where = devices[0]
    kind = choose(sandbox, str(where))
    dtype = parse_dtype(dtype)
    demand_folder(folder)  # before a suite, which may be mistyped as well
    suite = selection.load(dtype, where.type)
    found = find(folder, suite)
    for line in _warnings(found, kind):
        print(f"kernelyard: {line}", file=sys.stderr)
    environment = describe(where)
    settings = Settings(
        dtype=dtype, policy=policy, rounds=rounds, budget=budget, sandbox=kind.value, hardware=_hardware(where),
        train_mode=train,
    )  # fmt: skip
    terms = Terms(
        dtype,
        kind,
        Limits(memory_bytes=int(memory * GIB)),
        deadlines,
        Plan(rounds=rounds, seconds=budget),
        policy,
        train,
    )
    levels = levels_of(folder) | {candidate.key.level for candidate in found.candidates}
    if not (folder / FILE_NAME).exists():
        foreign_outcomes(folder, levels)  # which may be refused, and then no ledger is begun
    with Ledger(folder, create=True) as ledger:
        ledger.begin(suite, settings, environment)
        _take_over(ledger, folder, levels)
        left = _left(ledger, suite, found, retry or (), again=again)
        jobs = jobs or max(1, usable_cores() - CORES_A_SLOT * len(devices))
        known = {one.key for one in ledger.foreign()} - {candidate.key for candidate in left}
        theirs = [candidate for candidate in found.candidates if candidate.key in known]
        judged = ledger.keys()
        # More judges than candidates would only start.
        names = [str(each) for each in devices[: max(1, len(left))]]
        with _Shown(found, left, names, len(theirs), sum(candidate.key in judged for candidate in left)) as shown:
            pipeline = Pipeline(
                ledger, suite, left, terms, names, environment,
                jobs=jobs, on_judged=shown.judged, on_elsewhere=shown.elsewhere, on_look=shown.look,
            )  # fmt: skip
            try:
                pipeline.run()
            except KeyboardInterrupt:
                context.ensure_object(list).extend(_unexported(folder))
                raise
        for reason in (*found.unreadable, *pipeline.unfit):
            print(f"kernelyard: {reason}", file=sys.stderr)
        # What KernelBench wrote while this ran is kept, too.
        _take_over(ledger, folder, levels)
        _export(folder, ledger)
        known = {one.key for one in ledger.foreign()}
        missing = [one.key for one in found.candidates if _is_missing(ledger, suite, one, known)]
    if missing:
        count = len(found.candidates)
        print(f"kernelyard: {len(missing)} of {count} could not be judged, {missing[0]} first", file=sys.stderr)
    if missing or found.unreadable:
        raise typer.Exit(1)


def _demand_nothing_else(context: typer.Context) -> None:
    """Raises UsageError for options beside --export, which none of them would change."""
    taken = ("folder", "only_export")
    options = [option for option in context.command.params if option.name and option.name not in taken]
    sources = [(option.opts[0], context.get_parameter_source(option.name or "")) for option in options]
    given = [name for name, source in sources if source is not None and source.name == "COMMANDLINE"]
    if given:
        raise UsageError(f"--export writes what there is, and takes no {', '.join(given)}")


def _warnings(found: Found, kind: SandboxKind) -> Iterator[str]:
    """What a run does otherwise than its folder's owner may think."""
    if found.misnamed:
        said = f"{found.misnamed[0]}, and {len(found.misnamed) - 1} more," if found.misnamed[1:] else found.misnamed[0]
        yield f"{visible(said)} is no solution by its name; expected {LAYOUTS}"
    building = sum(builds(candidate.source, SandboxKind.BUBBLEWRAP) for candidate in found.candidates)
    if building and kind is not SandboxKind.BUBBLEWRAP:
        said = counted(building, "solution builds an extension", "solutions build extensions")
        yield f"{said}, where it is judged and every time: bubblewrap builds ahead"


def _take_over(ledger: Ledger, folder: Path, levels: set[int]) -> None:
    """Keep all that KernelBench came to, chosen or not: its files are written anew from the ledger.

    `levels`: of the solutions. Once there are verdicts of one level alone, the file beside them is ours, of that level.
    """
    before = ledger.levels()
    ledger.take_over(foreign_outcomes(folder, before if len(before) == 1 else before | levels))


def _left(ledger: Ledger, suite: Suite, found: Found, retry: Collection[str], *, again: bool) -> list[Candidate]:
    """Those without a verdict on what their file and their problem say now."""
    theirs = set() if again else {one.key for one in ledger.foreign()}
    left = []
    for candidate in found.candidates:
        key = candidate.key
        texts = _texts(suite, candidate)
        stands = ledger.stands(key)
        if (stands is None or stands[:2] != texts) and ledger.take_back(key, *texts):
            stands = ledger.stands(key)
        if stands is None and key in theirs:
            continue
        if stands is not None:
            if stands[:2] == texts and stands[2].value not in retry:
                continue
            ledger.give_way(key)
        left.append(candidate)
    return left


def _is_missing(ledger: Ledger, suite: Suite, candidate: Candidate, known: Collection[Key]) -> bool:
    """Whether there is no verdict on what its file and its problem say now, and KernelBench has none of it either."""
    stands = ledger.stands(candidate.key)
    if stands is None:
        return candidate.key not in known
    return stands[:2] != _texts(suite, candidate) or stands[2] is Status.INFRA_ERROR


def _texts(suite: Suite, candidate: Candidate) -> tuple[str, str]:
    """SHA-256 of the solution and of its problem, as `Ledger.stands` has them."""
    return candidate.source.sha256, suite.texts[candidate.key.level, candidate.key.problem]


def _hardware(where: torch.device) -> str:
    """Without what a CPU's environment adds of this process."""
    return describe(where).device_name.partition(" (")[0] if where.type == "cpu" else describe(where).device_name


def _deadlines(text: str | None) -> Deadlines:
    """`60`, or `compile=300,check=60`. Raises UsageError for anything else."""
    if text is None:
        return Deadlines()
    given: dict[str, float] = {}
    try:
        for part in text.split(","):
            name, equals, seconds = part.rpartition("=")
            names = [name.strip()] if equals else PHASES
            if not set(names) <= set(PHASES) - set(given):
                raise ValueError
            given |= dict.fromkeys(names, parse_seconds(seconds, LEAST_SECONDS))
    except ValueError:
        amount = f"{LEAST_SECONDS:g} to {MOST_SECONDS:g} seconds"
        phases = ", ".join(PHASES)
        raise UsageError(f"--timeout {text!r}: expected {amount}, or for {phases}, as in check=60") from None
    return Deadlines(**given)


def _export(folder: Path, ledger: Ledger) -> None:
    for file in export(folder, ledger.judged(), ledger.foreign()):
        print(f"wrote {file}")


def _unexported(folder: Path) -> Iterator[str]:
    """What an interrupted run says of KernelBench's files where they are there: by themselves they look whole."""
    with suppress(UsageError):  # such a file is refused when it is written next
        found = read_run(folder)
        if found.results and (count := found.unexported):
            lacks = f"{RESULTS} lacks {counted(count, 'verdict')}"
            yield f"{lacks} until the next run, or `kernelyard run {visible(str(folder))} --export`"


class _Shown:
    """A line on stdout for each verdict; on stderr what is done, how fast and how long it will take."""

    def __init__(self, found: Found, left: list[Candidate], devices: Sequence[str], theirs: int, anew: int) -> None:
        self._done, self._all = len(found.candidates) - len(left), len(left)
        self._statuses: Counter[str] = Counter()
        self._new = 0
        self._devices, self._given = devices, [0] * len(devices)
        self._begin = time.monotonic()
        self._unwanted, self._theirs, self._anew = found.said_unwanted, theirs, anew
        console = Console(stderr=True)
        # Where it is narrow the words fold: the count is a number, and a part of it another.
        self._bar = Progress(
            TextColumn("judged"),
            BarColumn(20),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[said]}", table_column=Column(overflow="fold")),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=len(found.candidates), completed=self._done, said="")

    def __enter__(self) -> "_Shown":
        ours = self._done - self._theirs
        notes = [f"{counted(self._anew, 'of them has', 'of them have')} a verdict, which counts until then"] * bool(
            self._anew
        )
        notes += [f"{counted(ours, 'has', 'have')} a verdict"] * bool(ours)
        notes += [f"{counted(self._theirs, 'is', 'are')} taken as KernelBench judged"] * bool(self._theirs)
        notes += [visible(self._unwanted)] * bool(self._unwanted)
        print(f"{self._all} to judge{''.join('; ' + note for note in notes)}", flush=True)
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        said = ", ".join(f"{count} {status}" for status, count in self._statuses.most_common())
        took = f"{time.monotonic() - self._begin:.1f} s"
        print(f"{self._new} judged in {took}{self._rate()}: {said or 'nothing'}{self._shares()}", flush=True)

    def judged(self, one: Judged, place: int) -> None:
        verdict = one.verdict
        self._statuses[verdict.status.value] += 1
        self._new += 1
        self._given[place] += 1
        speed = f"{verdict.speedup:.3g}x {verdict.decision.value}" if verdict.speedup and verdict.decision else ""
        if verdict.is_unshown:
            speed += f", {verdict.credited:.3g}x credited"
        elif verdict.told:
            speed += f" of {verdict.told:.3g}x told"
        why = visible(gist(verdict.message), 100)
        took = " + ".join(f"{seconds:.1f}" for seconds in one.seconds.values())
        print(f"{one.key}  {verdict.status.value}  {speed or why}  ({took} s)", flush=True)

    def elsewhere(self, _: Candidate) -> None:
        self._statuses["judged by another process"] += 1

    def look(self, pipeline: Pipeline) -> None:
        work = pipeline.work
        at = ", ".join(slot.phase for slot in pipeline.slots if slot.phase)
        said = f"{work.building} building{self._rate()}{self._time_left()}{'; ' + at if at else ''}"
        self._bar.update(self._task, completed=self._done + sum(self._statuses.values()), said=said)

    def _rate(self) -> str:
        seconds = time.monotonic() - self._begin
        return f", {3600 * self._new / seconds:.0f} an hour" if self._new else ""

    def _shares(self) -> str:
        """How many verdicts each device gave, where there are several: whether they were used evenly."""
        if not self._new or len(self._devices) == 1:
            return ""
        given = zip(self._devices, self._given, strict=True)
        return f"; {', '.join(f'{device} {count}' for device, count in given)}"

    def _time_left(self) -> str:
        gone = sum(self._statuses.values())
        if not gone:
            return ""
        seconds = int((time.monotonic() - self._begin) / gone * (self._all - gone))
        return f", {seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02} left"
