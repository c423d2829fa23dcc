"""The ledger of a run: nothing lost, nothing twice, whoever dies."""

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from verdicts import ENVIRONMENT, SETTINGS, judged, suite

from kernelyard.campaign import ledger as module
from kernelyard.campaign import work as work_module
from kernelyard.campaign.ledger import FILE_NAME, Ledger, Owner
from kernelyard.campaign.records import Candidate, Foreign, Key
from kernelyard.campaign.runs import read_run
from kernelyard.campaign.work import Task, Work
from kernelyard.core.errors import UsageError
from kernelyard.core.problem import Source
from kernelyard.core.verdict import Status
from kernelyard.suites.suite import Suite

KEY = Key(1, 1, 0)
OTHER = Key(1, 1, 1)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path, create=True) as made:
        made.begin(suite(), SETTINGS, ENVIRONMENT)
        yield made


def test_a_verdict_is_read_back_as_it_was(ledger: Ledger, tmp_path: Path) -> None:
    verdicts = [judged(OTHER), judged(KEY, Status.TIMEOUT)]
    for one in verdicts:
        assert ledger.lease(one.key) and ledger.finish(one)
    with Ledger(tmp_path) as again:
        assert again.judged() == verdicts[::-1]
        assert again.settings == SETTINGS and again.meta("suite_sha256") == suite().sha256
        assert again.stands(KEY) == ("s", "p", Status.TIMEOUT)


def test_a_run_that_was_judged_in_parts_is_of_none_of_their_suites(ledger: Ledger) -> None:
    entry = suite().entries[0]
    whole = Suite("made up", (entry, replace(entry, number=2)))
    second = Suite("made up", whole.entries[1:], whole=False)
    ledger.finish(judged(KEY))
    ledger.begin(second, SETTINGS, ENVIRONMENT)
    ledger.finish(judged(Key(1, 2, 0)))
    assert ledger.meta("suite_sha256") == "" and read_run(ledger.path.parent).suite_sha256 is None
    ledger.begin(whole, SETTINGS, ENVIRONMENT)
    assert read_run(ledger.path.parent).suite_sha256 == whole.sha256


def test_the_first_verdict_stands(ledger: Ledger) -> None:
    assert ledger.finish(judged(KEY, Status.CRASHED))
    assert not ledger.finish(judged(KEY, Status.TIMEOUT))
    assert [one.verdict.status for one in ledger.judged()] == [Status.CRASHED]
    assert not ledger.lease(KEY)


def test_an_infra_error_gives_way(ledger: Ledger) -> None:
    assert ledger.finish(judged(KEY, Status.INFRA_ERROR))
    assert ledger.finish(judged(KEY, Status.CRASHED))
    assert [one.verdict.status for one in ledger.judged()] == [Status.CRASHED]


def test_what_gives_way_counts_until_another_is_there_and_is_kept_apart(ledger: Ledger) -> None:
    old = judged(KEY, solution="old")
    ledger.finish(old)
    ledger.give_way(KEY)
    assert ledger.judged() == [old] and ledger.stands(KEY) is None and ledger.lease(KEY)
    assert ledger.finish(judged(KEY, solution="new"))
    assert not ledger.finish(judged(KEY, solution="newer"))
    assert ledger.stands(KEY) == ("new", "p", Status.CRASHED)
    kept = ledger._connection.execute("SELECT solution_sha256 FROM superseded").fetchall()
    assert kept == [("old",)]


def test_what_another_process_has_put_in_its_place_stays(ledger: Ledger, tmp_path: Path) -> None:
    ledger.finish(judged(KEY, solution="old"))
    with Ledger(tmp_path) as other:
        other.give_way(KEY)
        ledger.give_way(KEY)
        assert ledger.finish(judged(KEY, solution="new"))
        assert other.stands(KEY) == ("new", "p", Status.CRASHED)
        assert not other.lease(KEY) and not other.finish(judged(KEY, solution="newer"))


def test_a_superseded_verdict_on_the_same_texts_is_taken_back(ledger: Ledger) -> None:
    first, second = judged(KEY, Status.TIMEOUT), judged(KEY, Status.CRASHED)
    for one in (judged(KEY, Status.INFRA_ERROR), first, second, judged(KEY, problem="another")):
        ledger.give_way(KEY)
        assert ledger.finish(one)
    assert not ledger.take_back(KEY, "another", "p") and not ledger.take_back(OTHER, "s", "p")
    assert ledger.take_back(KEY, "s", "p") and ledger.judged() == [second], "the latest"
    assert ledger.take_back(KEY, "s", "another")
    ledger._connection.execute("UPDATE superseded SET settings_sha256 = 'others'")
    assert not ledger.take_back(KEY, "s", "p")


def test_a_run_has_one_kind_of_settings(ledger: Ledger) -> None:
    changed = SETTINGS.model_copy(update={"dtype": "bf16"})
    ledger.begin(suite(), changed, ENVIRONMENT)
    ledger.finish(judged(KEY))
    with pytest.raises(UsageError, match="dtype bf16, not fp32"):
        ledger.begin(suite(), SETTINGS, ENVIRONMENT)


def test_settings_do_not_change_under_who_is_judging(ledger: Ledger, tmp_path: Path) -> None:
    """Before the first verdict too: it would be kept under the later settings."""
    changed = SETTINGS.model_copy(update={"dtype": "bf16"})
    with Ledger(tmp_path) as other:
        other._owner = Owner(module._host(), os.getppid(), module._started(os.getppid()) or 0)
        assert ledger.lease(KEY)
        with pytest.raises(UsageError, match="dtype fp32, not bf16"):
            other.begin(suite(), changed, ENVIRONMENT)
        ledger.release()
        other.begin(suite(), changed, ENVIRONMENT)
        with pytest.raises(UsageError, match="begun anew with other settings"):
            ledger.finish(judged(KEY))
        assert other.judged() == []


@pytest.mark.parametrize("older", [{"solution": "the older text's"}, {"problem": "the older text's"}])
def test_a_verdict_on_a_text_that_is_no_longer_in_the_file_is_not_waited_for(
    ledger: Ledger, tmp_path: Path, older: dict[str, str]
) -> None:
    """Another process leased it with the older text, and finishes it."""
    candidate = Candidate(KEY, Source(Path("solution.py"), "the newer text"))
    with Ledger(tmp_path) as other:
        other._owner = Owner(module._host(), os.getppid(), module._started(os.getppid()) or 0)
        assert other.lease(KEY)
        work = Work(ledger, [candidate], lambda _: True, {(1, 1): "p"}, room=1)
        assert work._lease_build() is None and work.look_elsewhere() == []
        other.begin(suite(), SETTINGS, ENVIRONMENT)
        other.finish(judged(KEY, **{"solution": candidate.source.sha256, **older}))
        assert work.look_elsewhere() == [] and work.to_build() == candidate
        work.stop()
        assert ledger.stands(KEY) is None


def test_verdicts_of_other_processes_on_the_same_texts_are_done(ledger: Ledger, tmp_path: Path) -> None:
    candidates = [Candidate(key, Source(Path("solution.py"), "a text")) for key in (KEY, OTHER)]
    work = Work(ledger, candidates, lambda _: False, {(1, 1): "p"}, room=1)
    with Ledger(tmp_path) as other:
        other._owner = Owner(module._host(), os.getppid(), module._started(os.getppid()) or 0)
        assert other.lease(KEY) and other.lease(OTHER)
        assert work._lease_plain(lambda _: (False, False)) is None
        other.finish(judged(KEY, solution=candidates[0].source.sha256))
        assert work.look_elsewhere() == candidates[:1] and not work.over()


def test_the_next_is_of_the_slots_problem_then_of_one_nobody_is_at_and_what_failed_comes_last(ledger: Ledger) -> None:
    keys = [Key(1, problem, sample) for problem in (1, 2, 3) for sample in range(2)]
    candidates = [Candidate(key, Source(Path("solution.py"), "a text")) for key in keys]
    work = Work(ledger, candidates, lambda _: False, {}, room=1)

    def take(last: tuple[int, int] | None) -> Task:
        task = work.to_judge(last)
        assert task is not None
        return task

    first, second = take(None), take(None)
    assert [one.candidate.key for one in (first, second)] == [Key(1, 1, 0), Key(1, 2, 0)]
    assert take((1, 1)).candidate.key == Key(1, 1, 1)
    ledger.release()
    work.judged(first, again=True)
    assert take(None).candidate.key == Key(1, 3, 0)
    assert [take((1, 3)).candidate.key for _ in range(3)] == [Key(1, 3, 1), Key(1, 2, 1), Key(1, 1, 0)]


def test_the_next_is_found_without_a_look_at_every_candidate(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the lock of all slots: with 100,000 pending it took 94 ms for each."""
    candidates = [Candidate(Key(1, 1, sample), Source(Path("solution.py"), "")) for sample in range(300)]
    work = Work(ledger, candidates, lambda _: False, {}, room=1)
    looked = []
    monkeypatch.setattr(work_module, "_problem", lambda candidate: looked.append(candidate) or (1, 1))
    assert [work.to_judge((1, 1)).candidate for _ in range(2)] == candidates[:2]  # type: ignore[union-attr]
    assert len(looked) < 10


def test_keys_are_had_without_a_look_at_the_verdicts(ledger: Ledger) -> None:
    for key in (KEY, OTHER):
        ledger.finish(judged(key))
    ledger._connection.execute("UPDATE verdicts SET judged = 'none'")
    assert ledger.keys() == {KEY, OTHER}


def test_a_full_disk_is_told_as_one_and_the_ledger_goes_on(ledger: Ledger) -> None:
    (pages,) = ledger._connection.execute("PRAGMA page_count").fetchone()
    ledger._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(UsageError, match="database or disk is full"):
        for sample in range(200):
            ledger.finish(judged(Key(1, 1, sample)))
    kept = ledger.keys()
    ledger._connection.execute(f"PRAGMA max_page_count = {10 * pages}")
    assert ledger.finish(judged(Key(1, 1, 200))) and ledger.keys() == {*kept, Key(1, 1, 200)}


def test_a_close_that_cannot_release_closes_and_hides_no_error(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BUSY_SECONDS", 0.1)
    hindered, failing = Ledger(tmp_path), Ledger(tmp_path)
    ledger._connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(UsageError, match="locked"), hindered:
        pass
    with pytest.raises(RuntimeError, match="the body's own"), failing:
        raise RuntimeError("the body's own")
    ledger._connection.execute("ROLLBACK")
    for closed in (hindered, failing):
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            closed._connection.execute("SELECT 1")


def test_foreign_outcomes_are_shown_until_there_is_a_verdict(ledger: Ledger) -> None:
    theirs = [Foreign(level=1, problem=1, sample=i, outcome={"sample_id": i, "compiled": True}) for i in range(2)]
    ledger.take_over(theirs)
    assert ledger.foreign() == theirs and ledger.levels() == {1}
    theirs[0] = theirs[0].model_copy(update={"outcome": {"sample_id": 0, "compiled": False}})
    ledger.take_over(theirs[:1])  # judged there once more
    assert ledger.foreign() == theirs
    ledger.finish(judged(KEY, Status.INFRA_ERROR))
    assert ledger.foreign() == theirs
    ledger.finish(judged(KEY))
    assert ledger.foreign() == theirs[1:]


def _hold(folder: Path, ready: "multiprocessing.Queue[bool]") -> None:
    held = Ledger(folder)
    ready.put(held.lease(KEY))
    signal.pause()


def test_a_lease_ends_with_its_process(ledger: Ledger, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    holder = context.Process(target=_hold, args=(tmp_path, ready), daemon=True)
    holder.start()
    assert ready.get(timeout=60)
    assert not ledger.lease(KEY) and ledger.lease(OTHER)
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    assert ledger.lease(KEY)


def test_a_lease_of_another_host_ends_by_the_clock(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_owner", Owner("elsewhere", 1, 1))
    assert ledger.lease(KEY) and ledger.lease(OTHER)
    now = module.time.time()
    monkeypatch.setattr(module.time, "time", lambda: now + 0.9 * module.LEASE_SECONDS)
    ledger.renew()
    monkeypatch.setattr(ledger, "_owner", Owner.this())
    monkeypatch.setattr(module.time, "time", lambda: now + 1.5 * module.LEASE_SECONDS)
    assert not ledger.lease(KEY)
    monkeypatch.setattr(module.time, "time", lambda: now + 2 * module.LEASE_SECONDS)
    assert ledger.lease(KEY)


def test_a_pid_that_is_used_again_is_another_process() -> None:
    this = Owner.this()
    assert not this.gone and Owner(this.host, this.pid, this.started - 1).gone
    assert not Owner("elsewhere", this.pid, 0).gone


def test_closing_gives_leases_back(tmp_path: Path) -> None:
    with Ledger(tmp_path, create=True) as first, Ledger(tmp_path) as second:
        first._owner = Owner("elsewhere", 1, 1)
        assert first.lease(KEY) and not second.lease(KEY)
        first.release()
        assert second.lease(KEY)


@pytest.mark.parametrize("damage", ["not a database", "cut", "another version"])
def test_a_damaged_ledger_is_one_line(tmp_path: Path, damage: str) -> None:
    with Ledger(tmp_path, create=True) as ledger:
        ledger.begin(suite(), SETTINGS, ENVIRONMENT)
        for i in range(50):
            ledger.finish(judged(Key(1, 1, i)))
    file = tmp_path / FILE_NAME
    whole = file.read_bytes()
    if damage == "not a database":
        file.write_bytes(b"no ledger" * 1000)
    elif damage == "cut":
        file.write_bytes(whole[: len(whole) // 2])
    else:
        file.write_bytes(whole[:60] + (7).to_bytes(4, "big") + whole[64:])
    with pytest.raises(UsageError) as error:
        Ledger(tmp_path)
    assert str(file) in str(error.value) and "\n" not in str(error.value)


def test_no_ledger_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"no {FILE_NAME}"):
        Ledger(tmp_path)
    with pytest.raises(UsageError, match="unable to open"):
        Ledger(tmp_path / "nowhere", create=True)


def test_many_processes_share_one(tmp_path: Path) -> None:
    """Each takes what it gets, opens a new file at the same moment, and no candidate is judged twice."""
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "from kernelyard.campaign.ledger import Ledger; from kernelyard.campaign.records import Key\n"
        "from verdicts import *\n"
        "ledger = Ledger(Path(sys.argv[1]), create=True); ledger.begin(suite(), SETTINGS, ENVIRONMENT)\n"
        "keys = [Key(1, 1, i) for i in range(40)]\n"
        "print(sum(ledger.lease(key) and ledger.finish(judged(key)) for key in keys))\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path), str(Path(__file__).parent)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    counts = [int(one.communicate(timeout=120)[0]) for one in running]
    assert sum(counts) == 40
    with Ledger(tmp_path) as ledger:
        assert len(ledger.judged()) == 40
