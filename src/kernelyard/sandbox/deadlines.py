"""How long a worker may take, phase by phase."""

from dataclasses import dataclass

from kernelyard.core.verdict import Phase

# How many times a phase's deadline all of its requests may take together: a solution that answers each a moment before
# the deadline had the device for hours. An honest call of 2 s is asked for 72 times or so.
IN_ALL = 5

WAITING = "waiting for the device"
"""The phase that lasts as long as others have it, `queue` at most."""


@dataclass(frozen=True)
class Deadlines:
    """Seconds that each phase's request may take before the worker is killed; all of them together, `IN_ALL` times."""

    queue: float = 3600.0
    """Until the GPU is free: others' evaluations, one at a time."""
    start: float = 60.0
    """Importing torch on a loaded machine; longer is the machine's fault, not the candidate's."""
    compile: float = 300.0
    """`load_inline` with torch's headers takes 53 s on an H100 machine, for each of up to a few extensions."""
    load: float = 300.0
    """As `compile`: what could not be built without a device is built here."""
    check: float = 120.0
    time: float = 120.0

    def of(self, phase: Phase) -> float:
        return {
            Phase.QUEUE: self.queue,
            Phase.START: self.start,
            Phase.COMPILE: self.compile,
            Phase.LOAD: self.load,
            Phase.CHECK: self.check,
            Phase.TIME: self.time,
        }[phase]
