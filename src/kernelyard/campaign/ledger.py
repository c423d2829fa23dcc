"""A run's memory: `kernelyard.sqlite` beside the solutions, a row for each verdict, a lease for what is under way.

Every step is one transaction, so that a process that is killed loses what it had under way and nothing else, and
several processes may share a run. A verdict is of one text of a solution on one text of a problem: where either has
changed since, it counts until there is another in its place, and is kept apart in `superseded` from then on. Who took
the wrong suite, or changed his mind, has it back by `take_back`.
"""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernelyard.campaign.records import NO_VERDICT, Foreign, Judged, Key, Settings
from kernelyard.core.environment import Environment
from kernelyard.core.errors import UsageError
from kernelyard.core.verdict import Status
from kernelyard.suites.suite import Suite

FILE_NAME = "kernelyard.sqlite"
# Held this long without a word from its holder, a lease is anybody's; holders renew six times as often.
LEASE_SECONDS = 60.0
# Others hold the file for milliseconds; a disk that is slower than this has other worries.
_BUSY_SECONDS = 30.0
_VERSION = 1
_ROW = """
    level INTEGER NOT NULL, problem INTEGER NOT NULL, sample INTEGER NOT NULL,
    solution_sha256 TEXT NOT NULL, problem_sha256 TEXT NOT NULL, settings_sha256 TEXT NOT NULL,
    status TEXT NOT NULL, judged TEXT NOT NULL
"""
_SCHEMA = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    f"CREATE TABLE verdicts ({_ROW}, PRIMARY KEY (level, problem, sample))",
    f"CREATE TABLE superseded ({_ROW})",
    """CREATE TABLE foreign_outcomes (
        level INTEGER NOT NULL, problem INTEGER NOT NULL, sample INTEGER NOT NULL, outcome TEXT NOT NULL,
        PRIMARY KEY (level, problem, sample))""",
    """CREATE TABLE leases (
        level INTEGER NOT NULL, problem INTEGER NOT NULL, sample INTEGER NOT NULL,
        host TEXT NOT NULL, pid INTEGER NOT NULL, started INTEGER NOT NULL, expires REAL NOT NULL,
        PRIMARY KEY (level, problem, sample))""",
    f"PRAGMA user_version = {_VERSION}",
)
_ANY_VERDICT = "SELECT 1 FROM verdicts LIMIT 1"
_KEY = "level = ? AND problem = ? AND sample = ?"


@dataclass(frozen=True)
class Owner:
    """A process, told from every other that ever had its number."""

    host: str
    """Machine, its boot, and the namespace in which `pid` counts."""
    pid: int
    started: int
    """Clock ticks since the boot."""

    @classmethod
    def this(cls) -> "Owner":
        return cls(_host(), os.getpid(), _started(os.getpid()) or 0)

    @property
    def gone(self) -> bool:
        """Whether it is known to have ended: only of a process of this host."""
        return self.host == _host() and _started(self.pid) != self.started


class Ledger:
    """The ledger of the run in `folder`. A context manager; its methods may be called from any thread.

    `create`: make it where there is none, which is else a UsageError. So is a file that is no ledger, or a damaged one.
    Without it a run that nobody here may write to can still be read.
    """

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.path = folder / FILE_NAME
        self._writable = create or (os.access(folder, os.W_OK) and os.access(self.path, os.W_OK))
        if not create and not self.path.exists():
            raise UsageError(f"{folder}: no {FILE_NAME}; expected the folder of a run that `kernelyard run` began")
        self._owner = Owner.this()
        self._lock = threading.RLock()
        self._begun: Settings | None = None
        # As they were when this process was told so: what another has put in their place stays.
        self._giving_way: dict[Key, str] = {}
        try:
            self._connection = sqlite3.connect(
                self._address(), uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        try:
            self._open()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except UsageError:
            # What ended the body says more; a lease that is not given back ends with this process.
            if kind is None:
                raise

    def close(self) -> None:
        """Give back every lease and the file."""
        try:
            if self._writable:
                self.release()
        finally:
            self._connection.close()

    def begin(self, suite: Suite, settings: Settings, environment: Environment) -> None:
        """Note what is judged, how and where. Raises UsageError for a run that is judged, or was, with others."""
        with self._transaction() as do:
            kept = self.settings
            if kept is not None and kept != settings and (self._is_leased(do) or do(_ANY_VERDICT).fetchone()):
                was, now = kept.model_dump(mode="json"), settings.model_dump(mode="json")
                changed = ", ".join(f"{name} {was[name]}, not {now[name]}" for name in was if was[name] != now[name])
                raise UsageError(f"{self.path.parent} was judged with {changed}; expected the same, or another folder")
            places = do("SELECT DISTINCT level, problem FROM verdicts").fetchall()
            for name, value in (
                ("suite", suite.name),
                # Judged in parts, the run is of none of them; what is on other texts is judged again.
                ("suite_sha256", suite.sha256 if suite.texts.keys() >= set(places) else ""),
                ("settings", settings.model_dump_json()),
                ("environment", environment.model_dump_json()),
            ):
                do("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
        self._begun = settings

    def _is_leased(self, do: "_Do") -> bool:
        """Whether somebody else who lives has something under way."""
        rows = do("SELECT host, pid, started, expires FROM leases").fetchall()
        return any(map(self._is_anothers, rows))

    def _is_anothers(self, lease: tuple[str, int, int, float]) -> bool:
        """Whether it is held still, and not by this process."""
        with self._as_written():
            return lease[:3] != self._who and lease[3] > time.time() and not Owner(*lease[:3]).gone

    def meta(self, name: str) -> str | None:
        """What `begin` noted: `suite`, `suite_sha256`, `settings`, `environment`, the latter two as JSON.

        `suite_sha256` is empty where verdicts are on problems that the last suite has not.
        """
        with self._transaction() as do:
            row = do("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    @property
    def settings(self) -> Settings | None:
        """Of every verdict here; None before the first `begin`."""
        kept = self.meta("settings")
        with self._as_written():
            return Settings.model_validate_json(kept) if kept else None

    def judged(self) -> list[Judged]:
        """Every verdict that counts, by level, problem and sample."""
        with self._transaction() as do:
            rows = do("SELECT judged FROM verdicts ORDER BY level, problem, sample").fetchall()
        with self._as_written():
            return [Judged.model_validate_json(row[0]) for row in rows]

    def keys(self) -> set[Key]:
        """Those of every verdict that counts."""
        with self._transaction() as do:
            return {Key(*row) for row in do("SELECT level, problem, sample FROM verdicts")}

    def foreign(self) -> list[Foreign]:
        """Outcomes that KernelBench came to, of samples of whose solutions no verdict here says anything."""
        query = """SELECT level, problem, sample, outcome FROM foreign_outcomes
            WHERE NOT EXISTS (SELECT 1 FROM verdicts WHERE verdicts.level = foreign_outcomes.level
                AND verdicts.problem = foreign_outcomes.problem AND verdicts.sample = foreign_outcomes.sample
                AND status NOT IN (?, ?))
            ORDER BY level, problem, sample"""
        with self._transaction() as do:
            rows = do(query, [status.value for status in NO_VERDICT]).fetchall()
        names = ("level", "problem", "sample")
        with self._as_written():
            return [Foreign(**dict(zip(names, row[:3], strict=True)), outcome=json.loads(row[3])) for row in rows]

    def take_over(self, outcomes: Sequence[Foreign]) -> None:
        """Keep outcomes of another program, each in place of what it said of the same sample before."""
        with self._transaction() as do:
            for one in outcomes:
                values = (*_columns(one.key), json.dumps(one.outcome))
                do("INSERT OR REPLACE INTO foreign_outcomes VALUES (?, ?, ?, ?)", values)

    def levels(self) -> set[int]:
        """Those of which there is a verdict, or an outcome that KernelBench came to."""
        with self._transaction() as do:
            rows = do("SELECT level FROM verdicts UNION SELECT level FROM foreign_outcomes").fetchall()
        return {row[0] for row in rows}

    def stands(self, key: Key) -> tuple[str, str, Status] | None:
        """SHA-256 of solution and problem, and the status, of the verdict that is to stay; None without one."""
        with self._transaction() as do:
            query = f"SELECT solution_sha256, problem_sha256, status, judged FROM verdicts WHERE {_KEY}"
            row = do(query, _columns(key)).fetchone()
        with self._as_written():
            return (row[0], row[1], Status(row[2])) if row and row[3] != self._giving_way.get(key) else None

    def give_way(self, key: Key) -> None:
        """Its verdict as it is now counts until another is finished; to this process it is as if there were none."""
        with self._transaction() as do:
            row = do(f"SELECT judged FROM verdicts WHERE {_KEY}", _columns(key)).fetchone()
        if row:
            self._giving_way[key] = row[0]

    def take_back(self, key: Key, solution_sha256: str, problem_sha256: str) -> bool:
        """Put the latest superseded verdict on these very texts in the place of what counts; whether there was one."""
        with self._transaction() as do:
            settings = self.settings
            query = f"""SELECT rowid FROM superseded WHERE {_KEY} AND solution_sha256 = ? AND problem_sha256 = ?
                AND settings_sha256 = ? AND status != ? ORDER BY rowid DESC LIMIT 1"""
            wanted = (solution_sha256, problem_sha256, settings.sha256 if settings else "", Status.INFRA_ERROR.value)
            row = do(query, (*_columns(key), *wanted)).fetchone()
            if row is None:
                return False
            self._retire(do, key)
            do("INSERT INTO verdicts SELECT * FROM superseded WHERE rowid = ?", row)
            do("DELETE FROM superseded WHERE rowid = ?", row)
        return True

    def lease(self, key: Key) -> bool:
        """Whether this process has it now, to judge: no verdict stands, and nobody else who lives holds it."""
        with self._transaction() as do:
            if self.stands(key) is not None:
                return False
            query = f"SELECT host, pid, started, expires FROM leases WHERE {_KEY}"
            held = do(query, _columns(key)).fetchone()
            if held and self._is_anothers(held):
                return False
            row = (*_columns(key), *self._who, time.time() + LEASE_SECONDS)
            do("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        return True

    def renew(self) -> None:
        """Every lease of this process lasts for another LEASE_SECONDS."""
        with self._transaction() as do:
            query = "UPDATE leases SET expires = ? WHERE host = ? AND pid = ? AND started = ?"
            do(query, (time.time() + LEASE_SECONDS, *self._who))

    def release(self) -> None:
        """Give back every lease of this process."""
        with self._transaction() as do:
            do("DELETE FROM leases WHERE host = ? AND pid = ? AND started = ?", self._who)

    def finish(self, judged: Judged) -> bool:
        """Keep a verdict and give its lease back; whether it counts.

        The first verdict stands, so that finishing twice, or after another process that took the lease for lost,
        changes nothing. Only `infra_error`, and what was told to `give_way`, is replaced by a later one.
        """
        with self._transaction() as do:
            settings = self.settings
            if settings is None:
                raise ValueError("a verdict is finished in a run that has begun")
            if self._begun not in (None, settings):
                raise UsageError(f"{self.path.parent} was begun anew with other settings; expected another folder")
            key = judged.key
            lease = f"DELETE FROM leases WHERE {_KEY} AND host = ? AND pid = ? AND started = ?"
            do(lease, (*_columns(key), *self._who))
            stands = self.stands(key)
            if stands is not None and stands[2] is not Status.INFRA_ERROR:
                return False
            self._retire(do, key)
            verdict = judged.verdict
            hashes = (verdict.solution_sha256, verdict.problem_sha256, settings.sha256)
            row = (*_columns(key), *hashes, verdict.status.value, judged.model_dump_json())
            do("INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        return True

    @property
    def _who(self) -> tuple[str, int, int]:
        return self._owner.host, self._owner.pid, self._owner.started

    def _retire(self, do: "_Do", key: Key) -> None:
        do(f"INSERT INTO superseded SELECT * FROM verdicts WHERE {_KEY}", _columns(key))
        do(f"DELETE FROM verdicts WHERE {_KEY}", _columns(key))
        self._giving_way.pop(key, None)

    def _address(self) -> str:
        """Where nothing can be written, a file without a log beside it is whole, and SQLite must not look for one."""
        address = self.path.absolute().as_uri()
        if self._writable:
            return address
        return f"{address}?{'mode=ro' if self.path.with_name(FILE_NAME + '-wal').exists() else 'immutable=1'}"

    def _open(self) -> None:
        """Make the tables where there are none, and look at the whole file once: a few ms for a thousand verdicts."""
        try:
            deadline = time.monotonic() + _BUSY_SECONDS
            while self._writable:
                try:
                    self._connection.execute("PRAGMA journal_mode = WAL")
                    break
                except sqlite3.OperationalError as error:
                    # Where two processes open a new file at once, one is refused and not made to wait.
                    if "locked" not in str(error) or time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)
            self._connection.execute("PRAGMA synchronous = FULL")
            damage = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        if damage != "ok":
            raise self._unusable(damage)
        with self._transaction() as do:
            version = do("PRAGMA user_version").fetchone()[0]
            tables = do("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if version == 0 and not tables:
                for statement in _SCHEMA:
                    do(statement)
            elif version != _VERSION:
                raise self._unusable(f"its version is {version}, expected {_VERSION}")

    @contextmanager
    def _transaction(self) -> "Iterator[_Do]":
        """All of it or nothing; one within another is part of it."""
        with self._lock:
            if self._connection.in_transaction:
                yield self._connection.execute
                return
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield self._connection.execute
                    self._connection.execute("COMMIT")
                except BaseException:
                    # Where the disk is full SQLite has rolled back by itself, and refuses to do it twice.
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
            except (sqlite3.Error, OverflowError) as error:
                raise self._unusable(error) from None

    @contextmanager
    def _as_written(self) -> Iterator[None]:
        """What no row that was written here makes of its reader is damage of the file."""
        try:
            yield
        except (ValueError, TypeError, RecursionError) as error:
            raise self._unusable(error) from None

    def _unusable(self, why: object) -> UsageError:
        line = (str(why).splitlines() or [type(why).__name__])[0]
        # Also of a log without its index, which would have to be made anew beside it.
        shut = "readonly" in line or "unable to open" in line
        unreadable = self.path.exists() and not (self.path.is_file() and os.access(self.path, os.R_OK))
        expected = "a folder that can be written to" if shut and not unreadable else "a ledger of `kernelyard run`"
        return UsageError(f"{self.path} cannot be used ({line}); expected {expected}")


_Do = Callable[..., sqlite3.Cursor]


def _columns(key: Key) -> tuple[int, int, int]:
    return key.level, key.problem, key.sample


@cache
def _host() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    namespace = Path("/proc/self/ns/pid")
    parts = [os.uname().nodename, boot.read_text().strip() if boot.exists() else ""]
    return " ".join([*parts, str(namespace.readlink()) if namespace.is_symlink() else ""])


def _started(pid: int) -> int | None:
    """When a process of this host began, in ticks; None where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may hold anything; state is the first field behind it, the start the twentieth.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])
