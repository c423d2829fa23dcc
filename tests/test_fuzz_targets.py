"""The atheris targets, briefly, where atheris is installed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_record_fuzz import FAILED

TESTS = Path(__file__).parent
REPLY = '{"nonce": "n", "samples": [[1.0, 2.0]], "failure": null}'
RESULTS = '{"1": [{"sample_id": 0, "compiled": true, "correctness": true, "metadata": {}, "runtime": 1.0}]}'


@pytest.mark.parametrize(
    ("target", "seeds", "runs"),
    [("sandbox/fuzz_frames.py", [REPLY], 3000), ("fuzz_records.py", [RESULTS, json.dumps(FAILED)], 1500)],
)
def test_under_atheris(target: str, seeds: list[str], runs: int, tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris has no wheel for this Python, or is not installed")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for i, seed in enumerate(seeds):
        (corpus / str(i)).write_text(seed)
    done = subprocess.run(
        [sys.executable, str(TESTS / target), f"-runs={runs}", f"-artifact_prefix={tmp_path}/", str(corpus)],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"Done {runs}" in done.stderr
