"""The compile worker: built once without a device, kept under the hash of the source, given to the run worker."""

import hashlib
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelyard.core.problem import Source
from kernelyard.core.verdict import Phase, Status
from kernelyard.judge import compiling
from kernelyard.judge.compiling import compiled, key
from kernelyard.judge.evaluate import evaluate
from kernelyard.judge.plan import Plan
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.exchange import Ended
from kernelyard.sandbox.launch import SandboxKind, bubblewrap_problem
from kernelyard.sandbox.pool import Post, Worker
from kernelyard.sandbox.session import Session
from kernelyard.suites.kernelbench import load_problem

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")
POST = Post(SandboxKind.BUBBLEWRAP)
DEADLINES = Deadlines(load=120, check=60, time=60)

# It builds by hand what torch's builder would: a file in the folder of extensions.
FAKE = """
# by load_inline, as it were
import os, pathlib
folder = pathlib.Path(os.environ["TORCH_EXTENSIONS_DIR"], "mine")
if not (folder / "library.so").exists():
    folder.mkdir(parents=True)
    (folder / "library.so").write_text("{content}")
    if os.environ["CUDA_VISIBLE_DEVICES"] != "":
        raise RuntimeError("the compile worker was given a device")
content = (folder / "library.so").read_text()

import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        assert content == "{content}", content
        return torch.softmax(x, dim=-1)
"""
REAL = """
import torch
from torch.utils.cpp_extension import load_inline

mine = load_inline(
    "mine", "torch::Tensor mine(torch::Tensor x) { return x.softmax(-1); }", functions=["mine"], verbose=True
)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return mine.mine(x)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if problem := bubblewrap_problem():
        pytest.skip(f"bubblewrap: {problem}")
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "built"


def source(text: str) -> Source:
    return Source(Path("solution.py"), text)


def build(solution: Source, deadlines: Deadlines = DEADLINES) -> bytes | None:
    return compiled(solution, POST, CPU, deadlines, lambda _: None)


def test_the_run_worker_gets_what_was_built(cache: Path) -> None:
    solution = source(FAKE.format(content="first"))
    built = build(solution)
    assert built is not None and b"first" in built
    with Session(Worker.start(POST), CPU, DEADLINES) as session:
        session.await_start()
        session.unpack(built)
        text = solution.text.replace("folder.mkdir(parents=True)", "raise RuntimeError('nothing was unpacked')")
        session.load("solution.py", text, "ModelNew", [], 1, torch.float32, {})
    assert len(list(cache.iterdir())) == 1


def test_the_second_time_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    solution = source(FAKE.format(content="first"))
    built = build(solution)
    monkeypatch.setattr(Worker, "start", lambda *_, **__: pytest.fail("a worker was started"))
    assert build(solution) == built


def test_one_text_is_built_once_whatever_its_files_name(monkeypatch: pytest.MonkeyPatch) -> None:
    solution = source(FAKE.format(content="first"))
    built = build(solution)
    other = replace(solution, path=solution.path.with_name("level_1_problem_2_sample_3_kernel.py"))
    monkeypatch.setattr(Worker, "start", lambda *_, **__: pytest.fail("a worker was started"))
    assert build(other) == built is not None
    looks = replace(solution, text=solution.text + "\nname = __file__\n")
    assert key(looks, CPU) != key(replace(looks, path=other.path), CPU)


def test_what_one_solution_leaves_behind_reaches_no_other(cache: Path) -> None:
    """Same folder, same file, same name of the solution: only the text differs, and so does what is kept."""
    poisoned, honest = source(FAKE.format(content="poison")), source(FAKE.format(content="honest"))
    assert key(poisoned, CPU) != key(honest, CPU)
    assert b"poison" in (build(poisoned) or b"")
    found = build(honest) or b""
    assert b"honest" in found and b"poison" not in found


def test_what_was_used_last_is_kept_and_the_disk_is_not_filled(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [source(FAKE.format(content=content)) for content in ("one", "two", "six")]
    entries = [cache / key(one, CPU) for one in sources]
    for one in sources[:2]:
        build(one)
    monkeypatch.setattr(compiling, "KEPT_BYTES", int(2.5 * entries[0].stat().st_size))
    build(sources[0])
    build(sources[2])
    assert [entry.exists() for entry in entries] == [True, False, True]


@pytest.mark.parametrize("damage", ["cut", "changed", "no tree"])
def test_a_damaged_entry_is_built_anew(cache: Path, damage: str) -> None:
    solution = source(FAKE.format(content="first"))
    built = build(solution)
    (entry,) = cache.iterdir()
    stored = entry.read_bytes()
    garbage = hashlib.sha256(b"garbage").digest() + b"garbage"
    entry.write_bytes({"cut": stored[:-1], "changed": stored[:-1] + b"?", "no tree": garbage}[damage])
    found = build(solution)
    assert built is not None and found is not None and len(found) == len(built) and entry.read_bytes() != garbage


def test_no_worker_for_a_source_that_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "start", lambda *_, **__: pytest.fail("a worker was started"))
    assert build(source("class ModelNew: pass")) is None
    solution = source(FAKE.format(content="first"))
    assert compiled(solution, replace(POST, kind=SandboxKind.NATIVE), CPU, DEADLINES, lambda _: None) is None


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("def load_inline(:\n", Status.COMPILE_ERROR),
        ("raise RuntimeError('Error building extension mine')  # load_inline", Status.COMPILE_ERROR),
        ("while True: pass  # load_inline", Status.TIMEOUT),
    ],
)
def test_a_build_that_fails_is_the_end(text: str, status: Status) -> None:
    with pytest.raises(Ended) as ended:
        build(source(text), replace(DEADLINES, compile=2))
    assert (ended.value.status, ended.value.phase) == (status, Phase.COMPILE)


@pytest.mark.parametrize(
    "text",
    ["raise RuntimeError('no GPU here')", "import os; os._exit(3)", "import os; os.kill(os.getpid(), 11)"],
)
def test_an_import_that_needs_a_device_is_left_to_the_run_worker(text: str, cache: Path) -> None:
    assert build(source(f"{text}  # load_inline")) is None
    assert not cache.exists()


def test_a_verdict_goes_through_it(cache: Path) -> None:
    phases: list[str] = []
    verdict = evaluate(
        load_problem(ROOT / "examples/judge/problem.py"),
        source(FAKE.format(content="first")),
        device=CPU,
        dtype=torch.float32,
        sandbox=POST.kind,
        limits=POST.limits,
        deadlines=DEADLINES,
        plan=Plan(rounds=3, seconds=0),
        on_phase=phases.append,
    )
    assert verdict.status is Status.PASSED, verdict.message
    assert phases[0] == "compiling"


def test_what_was_built_before_it_asked_for_a_device_is_kept() -> None:
    text = FAKE.format(content="first").replace("import torch\n", "import torch\ntorch.cuda.get_device_name()\n", 1)
    assert b"first" in (build(source(text)) or b"")


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("ninja") and shutil.which("g++")), reason="needs ninja and g++")
def test_ninja_has_nothing_left_to_do() -> None:
    """A real extension of torch's, in C++."""
    solution = source(REAL)
    begin = time.monotonic()
    built = build(solution)
    building = time.monotonic() - begin
    assert built is not None
    with Session(Worker.start(POST), CPU, DEADLINES) as session:
        session.await_start()
        session.unpack(built)
        begin = time.monotonic()
        session.load("solution.py", solution.text, "ModelNew", [], 1, torch.float32, {})
        loading = time.monotonic() - begin
        x = torch.randn(3, 4)
        session.run([[x]])
        (answer,) = session.fetch(0, [x]).tensors or ()
        assert "ninja: no work to do" in session.process.stdout
    assert torch.equal(answer, x.softmax(-1))
    assert loading < building / 2, "it was built again"
