"""A run: builds on all cores, one candidate a device behind them, every verdict in the ledger the moment it is known.

Builders are threads that wait for compile workers; slots are threads that wait for judges' processes. Nothing of a
candidate, and nothing of a problem, runs in this process, so that it is there until the end.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timezone

import torch

from kernelyard.campaign.ledger import LEASE_SECONDS, Ledger
from kernelyard.campaign.records import Candidate, Judged, Key
from kernelyard.campaign.slot import Answer, Slot, Terms, unasked
from kernelyard.campaign.work import LOOK_SECONDS, Problem, Task, Work
from kernelyard.core.environment import Environment
from kernelyard.core.verdict import Phase, Status, Verdict
from kernelyard.judge.compiling import Build, build, builds
from kernelyard.judge.headers import WORTH_BUILDS, precompile
from kernelyard.judge.size import TOO_LARGE
from kernelyard.sandbox.pool import Post
from kernelyard.suites.kernelbench import too_large
from kernelyard.suites.suite import Entry, Suite

ATTEMPTS = 3
"""How often a candidate is tried where the machine is at fault."""


class Pipeline:
    """Judges candidates into a ledger that has begun. `run` once.

    `on_judged`: is told each verdict, and the place in `devices` of the one that gave it.
    """

    def __init__(
        self,
        ledger: Ledger,
        suite: Suite,
        candidates: Sequence[Candidate],
        terms: Terms,
        devices: Sequence[str],
        environment: Environment,
        *,
        jobs: int,
        on_judged: Callable[[Judged, int], None] = lambda *_: None,
        on_elsewhere: Callable[[Candidate], None] = lambda _: None,
        on_look: Callable[["Pipeline"], None] = lambda _: None,
    ) -> None:
        self._ledger, self._suite, self._terms, self._environment = ledger, suite, terms, environment
        self._on_judged, self._on_elsewhere, self._on_look = on_judged, on_elsewhere, on_look
        self._jobs, self._candidates = jobs, candidates
        self._attempts: Counter[Key] = Counter()
        self.work = Work(ledger, candidates, self._has_build, suite.texts, room=2 * jobs)
        self.slots = [Slot(device, terms) for device in devices]
        self.unfit: list[str] = []
        """Why devices were given up."""
        self._failed: BaseException | None = None

    def run(self) -> None:
        """Until every candidate has a verdict, or no device is left. Raises what the ledger raises."""
        to_build = sum(map(self._has_build, self._candidates))
        jobs = min(self._jobs, max(1, to_build))
        builders = [threading.Thread(target=self._guarded(self._build), daemon=True) for _ in range(jobs)]
        judges = [threading.Thread(target=self._guarded(self._judge, i), daemon=True) for i in range(len(self.slots))]
        for thread in (*builders, *judges):
            thread.start()
        if to_build >= WORTH_BUILDS:
            # The first builds do not wait for them.
            threading.Thread(target=precompile, args=(self.work.over,), daemon=True).start()
        renewed = time.monotonic()
        try:
            while not self.work.over():
                time.sleep(LOOK_SECONDS / 5)
                self._on_look(self)
                if time.monotonic() > renewed + LEASE_SECONDS / 6:
                    self._ledger.renew()
                    renewed = time.monotonic()
                for candidate in self.work.look_elsewhere():
                    self._on_elsewhere(candidate)
        finally:
            self.work.stop()
            for slot in self.slots:
                slot.close()
        if self._failed is not None:
            raise self._failed

    def _guarded(self, step: Callable[..., None], *given: object) -> Callable[[], None]:
        def whole() -> None:
            try:
                step(*given)
            except BaseException as error:
                self._failed = self._failed or error
                self.work.stop()

        return whole

    def _has_build(self, candidate: Candidate) -> bool:
        return builds(candidate.source, self._terms.sandbox) and not too_large(candidate.source)

    def _build(self) -> None:
        device = torch.device(self.slots[0].device)
        post = Post(self._terms.sandbox, self._terms.limits, str(device))
        while (candidate := self.work.to_build()) is not None:
            begin = time.monotonic()
            outcome = build(candidate.source, post, device, self._terms.deadlines)
            self.work.built(Task(candidate, outcome, time.monotonic() - begin))

    def _judge(self, place: int) -> None:
        slot = self.slots[place]
        last: Problem | None = None
        while (task := self.work.to_judge(last)) is not None:
            key = task.candidate.key
            last = (key.level, key.problem)
            self._attempts[key] += 1
            began, begin = _now(), time.monotonic()
            answer = slot.judge(self._entry(key), task.candidate.source, self._outcome(task))
            if self.work.stopped:
                return
            if not answer.asked:
                # The device's fault: no attempt of the candidate's.
                self._attempts[key] -= 1
                again = True
            else:
                verdict = self._verdict(task, answer)
                # With whom a device became unfit, it is not tried on the next: one candidate would take them all. And
                # a device that is too small for a problem stays so.
                for_good = bool(answer.unfit) or verdict.message.startswith(TOO_LARGE)
                again = verdict.status is Status.INFRA_ERROR and self._attempts[key] < ATTEMPTS and not for_good
                if not again:
                    self._keep(task, verdict, place, began, time.monotonic() - begin)
            self.work.judged(task, again=again)
            if answer.unfit:
                self.unfit.append(answer.unfit)
                if len(self.unfit) == len(self.slots):
                    self.work.stop()
                return

    def _keep(self, task: Task, verdict: Verdict, place: int, began: str, seconds: float) -> None:
        key = task.candidate.key
        judged = Judged(
            level=key.level,
            problem=key.problem,
            sample=key.sample,
            problem_name=self._entry(key).name,
            verdict=verdict,
            began=began,
            seconds={"compile": task.seconds, "judge": seconds},
            attempts=self._attempts[key],
        )
        self._ledger.finish(judged)
        self._on_judged(judged, place)

    def _outcome(self, task: Task) -> Build:
        if too_large(task.candidate.source):
            return Build(end=(Status.REJECTED, Phase.COMPILE, "a source of more than half a MiB"))
        return task.build

    def _verdict(self, task: Task, answer: Answer) -> Verdict:
        if answer.verdict is not None:
            return Verdict.model_validate_json(answer.verdict)
        source = task.candidate.source
        entry = self._entry(task.candidate.key)
        return unasked(Status.INFRA_ERROR, answer.fault, entry, source, self._terms, self._environment)

    def _entry(self, key: Key) -> Entry:
        entry = self._suite.entry(key.level, key.problem)
        assert entry is not None
        return entry


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
