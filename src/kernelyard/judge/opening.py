"""The baseline's worker, which gets ready while the solution is checked, or constructed where that takes long.

Its context takes 0.15 s of a verdict on an H100, and a reference with 270 MB of weights 0.5 to 0.7 s to construct, of
which 0.1 to 0.15 are over when the solution is checked. Nothing runs that anybody times meanwhile. Its first call waits
until the solution stands still: what tunes itself does so then. But the libraries that it needs begin before.
"""

from collections.abc import Callable

from kernelyard.core.verdict import Phase
from kernelyard.judge.findings import blameless
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


class Ahead:
    """The baseline's, begun before it is needed where that is `allowed`. What fails is no fault of the solution's."""

    def __init__(
        self, open_session: Callable[[], Session], begin_load: Callable[[Session], None], *, allowed: bool
    ) -> None:
        self._open, self._begin_load, self._allowed = open_session, begin_load, allowed
        self._opening: Opening | None = None

    def begin(self) -> None:
        """Take a worker, if none was taken."""
        if self._allowed and self._opening is None:
            self._opening = self._taken()

    def load(self) -> None:
        """And have it construct the reference."""
        self.begin()
        if self._opening is not None:
            with blameless():
                self._opening.load()

    def go_on(self) -> None:
        """The next step, if one was taken and is ready for it."""
        if self._opening is not None:
            with blameless():
                self._opening.go_on()

    def drop(self) -> None:
        """What it has loaded is no longer the reference."""
        self._opening = None

    def finish(self) -> Session:
        """The session, with the reference loaded; another one where it is asked for again."""
        opening, self._opening = self._opening or self._taken(), None
        with blameless():
            return opening.finish()

    def _taken(self) -> Opening:
        with blameless():
            return Opening(self._open(), self._begin_load)
