"""What is to be done in a run, and who does it next: builds ahead of the slots, one problem a slot where it can be."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kernelyard.campaign.ledger import Ledger
from kernelyard.campaign.records import Candidate
from kernelyard.judge.compiling import Build

# How long whoever waits sleeps before looking again for what other processes have let go.
LOOK_SECONDS = 1.0
Problem = tuple[int, int]


@dataclass(frozen=True)
class Task:
    """A candidate that is leased, and how its build went."""

    candidate: Candidate
    build: Build
    seconds: float = 0.0
    """That the build took."""


class Work:
    """Hands out each candidate once, under a lease of the ledger; any thread may ask.

    `room`: candidates that may be built, or be being built, while the slots are busy. What is leased and not judged is
    lost when the process is killed, and cannot be taken by another one that shares the run.
    """

    def __init__(
        self, ledger: Ledger, candidates: Iterable[Candidate], builds: Callable[[Candidate], bool], room: int
    ) -> None:
        self._ledger, self._room = ledger, room
        self._pending = list(candidates)
        # Asked once: it reads the whole text, and everything that is left is looked over at each turn.
        self._builds = {candidate.key: builds(candidate) for candidate in self._pending}
        self._ready: list[Task] = []
        self._elsewhere: list[Candidate] = []
        self._building = self._judging = 0
        self._at: Counter[Problem] = Counter()
        self._stopped = False
        self._changed = threading.Condition()

    def to_build(self) -> Candidate | None:
        """The next that has something to build; None once there is none left. Blocks while there is no room."""
        with self._changed:
            while not self._over():
                if self._building + len(self._ready) < self._room:
                    candidate = self._lease(each for each in self._pending if self._builds[each.key])
                    if candidate is not None:
                        self._building += 1
                        return candidate
                self._changed.wait(LOOK_SECONDS)
        return None

    def built(self, task: Task) -> None:
        """What `to_build` gave, and what came of it."""
        with self._changed:
            self._building -= 1
            self._ready.append(task)
            self._changed.notify_all()

    def to_judge(self, last: Problem | None) -> Task | None:
        """The next for a slot that judged problem `last` before; None once there is none left. Blocks meanwhile.

        A slot stays with its problem, whose inputs it has made before, and keeps out of the others' ways.
        """

        def place(candidate: Candidate) -> tuple[bool, bool]:
            problem = _problem(candidate)
            return problem != last, self._at[problem] > 0

        with self._changed:
            while not self._over():
                if self._ready:
                    task: Task | None = min(self._ready, key=lambda task: place(task.candidate))
                    assert task is not None
                    self._ready.remove(task)
                else:
                    plain = (candidate for candidate in self._pending if not self._builds[candidate.key])
                    candidate = self._lease(sorted(plain, key=place))
                    task = Task(candidate, Build()) if candidate is not None else None
                if task is not None:
                    self._judging += 1
                    self._at[_problem(task.candidate)] += 1
                    self._changed.notify_all()
                    return task
                self._changed.wait(LOOK_SECONDS)
        return None

    def judged(self, task: Task, *, again: bool = False) -> None:
        """What `to_judge` gave is done with, or has to be tried once more, after all others."""
        with self._changed:
            self._judging -= 1
            self._at[_problem(task.candidate)] -= 1
            if again:
                self._pending.append(task.candidate)
            self._changed.notify_all()

    def look_elsewhere(self) -> list[Candidate]:
        """Those that other processes held: the ones they have judged; what they let go is pending again."""
        done: list[Candidate] = []
        with self._changed:
            for candidate in list(self._elsewhere):
                stands = self._ledger.stands(candidate.key)
                judged = stands is not None and stands[0] == candidate.source.sha256
                if stands is not None and not judged:
                    # The file has been written anew since they read it.
                    self._ledger.give_way(candidate.key)
                if judged:
                    done.append(candidate)
                elif self._ledger.lease(candidate.key):
                    self._pending.append(candidate)
                else:
                    continue
                self._elsewhere.remove(candidate)
            self._changed.notify_all()
        return done

    def stop(self) -> None:
        """Nobody gets anything any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def over(self) -> bool:
        """Whether nothing is left to give out, or to wait for."""
        with self._changed:
            return self._over()

    @property
    def stopped(self) -> bool:
        return self._stopped

    @property
    def building(self) -> int:
        return self._building

    @property
    def judging(self) -> int:
        return self._judging

    def _over(self) -> bool:
        busy = self._pending or self._ready or self._elsewhere or self._building or self._judging
        return self._stopped or not busy

    def _lease(self, wanted: Iterable[Candidate]) -> Candidate | None:
        for candidate in list(wanted):
            self._pending.remove(candidate)
            if self._ledger.lease(candidate.key):
                return candidate
            self._elsewhere.append(candidate)
        return None


def _problem(candidate: Candidate) -> Problem:
    return candidate.key.level, candidate.key.problem
