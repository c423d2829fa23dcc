"""One more call of a solution under compute-sanitizer's memcheck: reads and writes that miss their tensors.

An access that misses by little lands in a neighbour and changes no answer. The report is written from inside the
worker, where a hostile solution could forge a clean one: this finds honest mistakes.
"""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import torch

from kernelyard.core.errors import UsageError
from kernelyard.core.problem import Source
from kernelyard.core.verdict import Flag, Phase, Status
from kernelyard.judge.exam import Exam
from kernelyard.judge.findings import End
from kernelyard.sandbox.deadlines import Deadlines
from kernelyard.sandbox.exchange import Ended
from kernelyard.sandbox.launch import SandboxKind
from kernelyard.sandbox.pool import Post, Worker
from kernelyard.sandbox.session import Session
from kernelyard.sandbox.wire import Manner

_MARK = "========="
# Every access is checked: 10 to 50 times slower, the start with torch's import included.
_SLOWER = 10
MEMCHECK = ("--tool", "memcheck", "--padding", str(64 << 10), "--report-api-errors", "no")
ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""With these each tensor is an allocation of its own, with nothing behind it: torch's cache would put a neighbour where
nothing should be, and so would the driver, which lays small ones 512 bytes apart. Functions that the driver lacks, and
that a library looks up by name, are no errors."""


def tool() -> Path:
    """Where compute-sanitizer is. Raises UsageError where it is not installed."""
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    folders = [str(Path(home, "bin")) for home in (*homes, "/usr/local/cuda") if home]
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=os.pathsep.join(folders))
    if found is None:
        raise UsageError("compute-sanitizer is not installed: expected it on PATH or in $CUDA_HOME/bin for --sanitize")
    return Path(found)


def sanitized(
    exam: Exam, solution: Source, built: bytes | None, post: Post, deadlines: Deadlines, program: Path
) -> Flag | None:
    """The flag of a call that made memory errors; None for a clean one. Raises End where the tool does not run."""
    device = exam.device
    command = (str(program), *MEMCHECK, "--print-limit", "20")
    slower = replace(deadlines, start=_SLOWER * deadlines.start, check=_SLOWER * deadlines.check)
    readable = (program.resolve().parents[1],)
    worker = Worker.start(post, command, readable=readable, environment=ENVIRONMENT)
    with Session(worker, device, slower) as session:
        ended = None
        try:
            session.await_start(device_memory=False)
            if built is not None:
                session.unpack(built)
            session.load(*exam.to_load(solution, "ModelNew"), train_mode=exam.problem.train_mode)
            session.phase = Phase.CHECK
            session.run([exam.arguments()], manner=Manner.BARE)
        except Ended as error:  # an illegal access ends in an error of the call's, and in the report
            ended = error
        report = session.finish(_SLOWER * deadlines.start)
    if evidence := findings(report):
        return Flag(name="sanitizer", evidence=evidence)
    if ended is not None or _MARK not in report:
        why = ended.message if ended else "it wrote no report"
        raise End(Status.INFRA_ERROR, f"no answer from under compute-sanitizer: {why}")
    return None


def findings(report: str) -> str | None:
    """What memcheck found, in one line: the first error, where, and how many; None for nothing."""
    lines = [line.removeprefix(_MARK).strip() for line in report.splitlines() if line.startswith(_MARK)]
    count = next((line for line in reversed(lines) if line.startswith("ERROR SUMMARY:")), "ERROR SUMMARY: 0 errors")
    number = (count.removeprefix("ERROR SUMMARY:").split() or ["unnumbered"])[0]
    if number == "0":
        return None
    told = [line for line in lines if line and not line.startswith(("COMPUTE-SANITIZER", "ERROR SUMMARY:"))]
    return f"{number} errors under memcheck; the first: {', '.join(told[:3])[:400]}"


def check_possible(device: torch.device, kind: SandboxKind) -> Path:
    """The tool for `device`. Raises UsageError where there is nothing that it could look at, or no way to it."""
    if device.type != "cuda" or torch.version.hip is not None:
        raise UsageError(f"--sanitize looks at NVIDIA GPUs; expected --device cuda, not {device}")
    if kind is SandboxKind.NATIVE:
        raise UsageError("--sanitize: the tool connects to what it looks at, which native denies; expected bubblewrap")
    return tool()
