"""What is to be done in a run, and who does it next: builds ahead of the slots, one problem a slot where it can be."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count

from kernelyard.campaign.ledger import Ledger
from kernelyard.campaign.records import Candidate, Key
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

    `texts`: SHA-256 of each problem's text.
    `room`: candidates that may be built, or be being built, while the slots are busy. What is leased and not judged is
    lost when the process is killed, and cannot be taken by another one that shares the run.
    """

    def __init__(
        self,
        ledger: Ledger,
        candidates: Iterable[Candidate],
        builds: Callable[[Candidate], bool],
        texts: Mapping[Problem, str],
        room: int,
    ) -> None:
        self._ledger, self._texts, self._room = ledger, texts, room
        self._builds: set[Key] = set()
        self._to_build: deque[Candidate] = deque()
        # A queue a problem, each candidate with its place among all: who chooses looks at the heads alone.
        self._plain: dict[Problem, deque[tuple[int, Candidate]]] = {}
        self._places = count()
        for candidate in candidates:
            # Asked once: it reads the whole text.
            if builds(candidate):
                self._builds.add(candidate.key)
            self._append(candidate)
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
                    candidate = self._lease_build()
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

        def place(problem: Problem) -> tuple[bool, bool]:
            return problem != last, self._at[problem] > 0

        with self._changed:
            while not self._over():
                if self._ready:
                    task: Task | None = min(self._ready, key=lambda task: place(_problem(task.candidate)))
                    assert task is not None
                    self._ready.remove(task)
                else:
                    candidate = self._lease_plain(place)
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
                self._append(task.candidate)
            self._changed.notify_all()

    def look_elsewhere(self) -> list[Candidate]:
        """Those that other processes held: the ones they have judged; what they let go is pending again."""
        done: list[Candidate] = []
        held: list[Candidate] = []
        with self._changed:
            for candidate in self._elsewhere:
                stands = self._ledger.stands(candidate.key)
                texts = (candidate.source.sha256, self._texts[_problem(candidate)])
                judged = stands is not None and stands[:2] == texts
                if stands is not None and not judged:
                    # A file has been written anew since they read it, or theirs is another suite.
                    self._ledger.give_way(candidate.key)
                if judged:
                    done.append(candidate)
                elif self._ledger.lease(candidate.key):
                    self._append(candidate)
                else:
                    held.append(candidate)
            self._elsewhere = held
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

    def _over(self) -> bool:
        busy = self._to_build or self._plain or self._ready or self._elsewhere or self._building or self._judging
        return self._stopped or not busy

    def _append(self, candidate: Candidate) -> None:
        """Pending, behind all others."""
        if candidate.key in self._builds:
            self._to_build.append(candidate)
        else:
            self._plain.setdefault(_problem(candidate), deque()).append((next(self._places), candidate))

    def _lease_build(self) -> Candidate | None:
        while self._to_build:
            if self._is_leased(candidate := self._to_build.popleft()):
                return candidate
        return None

    def _lease_plain(self, place: Callable[[Problem], tuple[bool, bool]]) -> Candidate | None:
        while self._plain:
            problem = min(self._plain, key=lambda problem: (place(problem), self._plain[problem][0][0]))
            queue = self._plain[problem]
            _, candidate = queue.popleft()
            if not queue:
                del self._plain[problem]
            if self._is_leased(candidate):
                return candidate
        return None

    def _is_leased(self, candidate: Candidate) -> bool:
        """Whether it is this process's now; what is not is looked at again."""
        if self._ledger.lease(candidate.key):
            return True
        self._elsewhere.append(candidate)
        return False


def _problem(candidate: Candidate) -> Problem:
    return candidate.key.level, candidate.key.problem
