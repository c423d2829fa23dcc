"""The baseline's worker, which gets ready while the solution is checked, or constructed where that takes long.

Its context takes 0.15 s of a verdict on an H100, and a reference with 270 MB of weights 0.5 to 0.7 s to construct, of
which 0.1 to 0.15 are over when the solution is checked. Nothing runs that anybody times meanwhile. Its first call waits
until the solution stands still: what tunes itself does so then. But the libraries that it needs begin before.
"""

from collections.abc import Callable

from kernelyard.core.verdict import Phase
from kernelyard.sandbox.session import Session

SLOW_SECONDS = 0.2
"""From what a constructor takes the judge on both sides' run beside each other. A worker more is used up then for a
solution that fails."""


class Opening:
    """A worker on its way. Every method raises Ended as its session does."""

    def __init__(self, session: Session, begin_load: Callable[[Session], None]) -> None:
        self._session, self._begin_load = session, begin_load
        self._loads = False
        session.begin_start()

    def go_on(self) -> None:
        """The next step, once the worker is up and has its context."""
        if not self._loads and self._session.is_started():
            self.load()

    def load(self) -> None:
        """Wait for its context, and have the worker construct the reference."""
        self._session.await_start()
        self._begin_load(self._session)
        self._loads = True

    def finish(self) -> Session:
        """The session, with the reference loaded, for calls that are timed."""
        if not self._loads:
            self.load()
        self._session.await_load()
        self._session.phase = Phase.TIME
        return self._session
