"""Which backends may be timed where: those that were proved on that very size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from kernelyard.bench.plan import Point
from kernelyard.core.errors import UsageError, first_line
from kernelyard.core.operator import Implementation, Operator
from kernelyard.core.verdict import Status
from kernelyard.core.workload import Mode, Workload
from kernelyard.judge.prove import REFUSED, Answers, Proof, prove
from kernelyard.suites.library import is_ours, public

UNABLE = (REFUSED, Status.RUNTIME_ERROR.value)
"""Endings that say nothing about the other sizes. A wrong answer does: a backend of ours that was caught once is not
believed elsewhere. A peer is, where it is right: it is a rival there, and stays one (quack 0.6.5's cross entropy in
bf16 is NaN of 4096 x 151936 logits, and was missing at every N for that)."""

Say = Callable[[str], None]


@dataclass
class Proofs:
    """The proofs of one operator's backends and peers at all points, and what is said of those that did not pass."""

    operator: Operator
    honest: Implementation
    device: torch.device
    say: Say
    negative: bool = False
    """Whether a backend of ours was wrong or raised; a peer's failure is no verdict on this library."""
    _passed: dict[tuple[Workload, str], bool] = field(default_factory=dict)
    """Of each workload and backend: with gradients (True), or the forward pass alone."""
    _walks_once: set[tuple[Workload, str]] = field(default_factory=set)
    """Workloads and backends whose second backward over a kept graph is another, as they declare."""
    _wrong: set[tuple[str, str]] = field(default_factory=set)
    """Backends of ours, and dtypes."""
    _said: set[tuple[str, str, str]] = field(default_factory=set)

    def add(self, point: Point, candidates: Sequence[Implementation], *, alone: bool) -> bool:
        """Proves every candidate on the point's workload.

        False where memory was short and others may hold it: not `alone` on the device, the point is to be added again.
        """
        try:
            answers = Answers(self.operator, self.honest, point.workload, self.device, gradients=point.gradients)
            for candidate in self._contenders(point, candidates):
                self._add(point, candidate, answers, alone=alone)
        except (UsageError, torch.OutOfMemoryError) as error:
            if not alone:
                return False
            self.negative = True
            self.say(f"{point.workload.label}: {first_line(error)}; not timed")
        return True

    def _contenders(self, point: Point, candidates: Sequence[Implementation]) -> list[Implementation]:
        """The candidates, and the public function where the host's time counts."""
        return [*candidates, *([public(self.operator)] if point.public else [])]

    def _add(self, point: Point, candidate: Implementation, answers: Answers, *, alone: bool) -> None:
        for gradients in (True, False) if point.gradients else (False,):
            proof = prove(
                self.operator, candidate, self.honest, point.workload, self.device, answers, gradients=gradients
            )
            if proof.passed:
                # A forward alone, of another sweep, unproves no gradient.
                place = point.workload, candidate.backend
                self._passed[place] = self._passed.get(place, False) or gradients
                if proof.walks_once:
                    self._walks_once.add(place)
                return
            if not alone and "out of memory" in proof.message:
                raise torch.OutOfMemoryError(proof.message)
            self._tell(proof, alone=point.gradients and not gradients)
            if proof.status not in UNABLE:
                if is_ours(candidate.backend):
                    self._wrong.add((candidate.backend, point.workload.dtype))
                return
            if Mode.FORWARD not in point.modes:
                return

    def _tell(self, proof: Proof, *, alone: bool) -> None:
        """Names what did not pass, each reason once."""
        self.negative |= is_ours(proof.backend) and proof.status != REFUSED
        reason = (proof.backend, proof.status, proof.message)
        if reason in self._said:
            return
        self._said.add(reason)
        what = " (forward alone)" if alone else ""
        self.say(f"{proof.backend}: {proof.status} on {proof.workload}{what}: {proof.message}; not timed")
        if proof.report:
            self.say(proof.report)

    def timeable(self, point: Point, mode: Mode, candidates: Sequence[Implementation]) -> list[Implementation]:
        """The contenders proved on the point's workload for the mode; of ours, those wrong on no other of its dtype."""
        return [each for each in self._contenders(point, candidates) if self._may_be_timed(point, mode, each)]

    def _may_be_timed(self, point: Point, mode: Mode, candidate: Implementation) -> bool:
        passed = self._passed.get((point.workload, candidate.backend))
        if passed is None or (candidate.backend, point.workload.dtype) in self._wrong:
            return False
        if mode is Mode.BACKWARD and (point.workload, candidate.backend) in self._walks_once:
            return False
        return passed or mode is Mode.FORWARD
