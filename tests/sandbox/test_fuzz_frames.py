"""The atheris target, briefly, where atheris is installed."""

import subprocess
import sys
from pathlib import Path

import pytest


def test_frames_under_atheris(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris has no wheel for this Python, or is not installed")
    target = Path(__file__).parent / "fuzz_frames.py"
    seed = tmp_path / "corpus"
    seed.mkdir()
    (seed / "reply").write_text('{"nonce": "n", "samples": [[1.0, 2.0]], "failure": null}')
    done = subprocess.run(
        [sys.executable, str(target), "-runs=3000", str(seed)], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Done 3000" in done.stderr
