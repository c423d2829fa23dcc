"""The ladder of one operator, then four solutions to one problem judged; ends with the path of an HTML report.

    make demo            or            python examples/demo.py [FOLDER FOR THE REPORT]

Needs no GPU: Triton runs through its interpreter, CUDA C++ is left out and says so.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from kernelyard.core.verdict import Verdict
from kernelyard.ladder.record import Ladder
from kernelyard.report.html import render

JUDGE = Path(__file__).parent / "judge"
SOLUTIONS = ("correct.py", "wrong.py", "cached.py", "kills_itself.py")


def kernelyard(*arguments: str) -> str:
    """Run a verb as a user would, show what it prints but the record, and return the record."""
    print(f"\n$ kernelyard {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "kernelyard", *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1):
        sys.exit(done.returncode)
    *shown, record = done.stdout.rstrip("\n").split("\n")
    print("\n".join(shown), flush=True)
    return record


def main() -> None:
    if len(sys.argv) > 2:
        sys.exit("expected one folder for the report at most")
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-report")
    if folder.exists() and not folder.is_dir():
        sys.exit(f"{folder}: a file; expected a folder for the report")
    here = Path(os.path.relpath(JUDGE))
    ladder = Ladder.model_validate_json(kernelyard("ladder", "softmax"))
    verdicts = [
        Verdict.model_validate_json(kernelyard("eval", str(here / "problem.py"), str(here / name), "--json"))
        for name in SOLUTIONS
    ]
    page = render([ladder], verdicts, "Kernelyard: softmax climbed, four solutions judged")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".html", delete=False) as file:
        file.write(page)
    Path(file.name).chmod(0o644)
    report = Path(file.name).replace(folder / "index.html")
    print(f"\nreport: {report.resolve()}")


if __name__ == "__main__":
    main()
