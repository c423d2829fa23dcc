"""Records and result files under atheris, which looks for new paths through what reads them.

PYTHONPATH=src python tests/fuzz_records.py -max_total_time=60
"""

import contextlib
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(
    include=["kernelyard.core.verdict", "kernelyard.campaign.kernelbench_files", "kernelyard.report.ledger"]
):
    from kernelyard.campaign import kernelbench_files
    from kernelyard.core.verdict import Verdict
    from kernelyard.report import ledger

from pydantic import ValidationError

from kernelyard.core.errors import UsageError

FOLDER = tempfile.TemporaryDirectory()
RESULTS, ROWS = Path(FOLDER.name) / "eval_results.json", Path(FOLDER.name) / "bench.csv"


def one(data: bytes) -> None:
    """A record, or one of the documented refusals."""
    with contextlib.suppress(ValidationError):
        Verdict.model_validate_json(data)
    for path, read in ((RESULTS, kernelbench_files.read), (ROWS, ledger.read)):
        path.write_bytes(data)
        with contextlib.suppress(UsageError):
            read(path)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
