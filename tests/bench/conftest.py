"""The library replaced by operators made up beside this file, and `bench` run on them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_up import OPERATORS, honest

from kernelyard.cli import bench as cli
from kernelyard.core.operator import Implementation

Library = Callable[..., None]


@pytest.fixture
def library(monkeypatch) -> Library:
    """Puts operators made up here in place of the library's: their backends, peers and public functions."""

    def install(backends: dict[str, list[Implementation]], peers: dict[str, Implementation | Exception]) -> None:
        def implementations(name: str, only: list[str] | None = None) -> list[Implementation]:
            return [item for item in backends[name] if not only or item.backend in only]

        def peer(name: str, wanted: str) -> Implementation:
            found = peers[wanted]
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(cli.ops, "operator_names", lambda: sorted(backends))
        monkeypatch.setattr(cli.ops, "definition", OPERATORS.__getitem__)
        monkeypatch.setattr(cli.ops, "backends", lambda name: [cli.Backend(item.backend) for item in backends[name]])
        monkeypatch.setattr(cli.ops, "peers", lambda name: sorted(peers))
        notes = {name: item.note for name, item in peers.items() if isinstance(item, Implementation) and item.note}
        monkeypatch.setattr(cli.ops, "peer_notes", lambda name: notes)
        for name in backends:
            monkeypatch.setattr(cli.ops, name, OPERATORS[name].reference, raising=False)
        monkeypatch.setattr(cli, "implementation", lambda name, backend: honest(OPERATORS[name]))
        monkeypatch.setattr(cli, "implementations", implementations)
        monkeypatch.setattr(cli, "peer", peer)

    return install


@pytest.fixture
def benched(library, tmp_path):
    """Runs `bench` on `double` with the given backends, or as the options say; returns the CSV's path."""
    path = tmp_path / "results" / "bench.csv"

    def run(*candidates: Implementation, **options: Any) -> Path:
        peers = options.pop("peers", {})
        backends = options.pop("backends", {"double": list(candidates)})
        library(backends, peers)
        given = {"operator": ["double"], "csv": path, "device": "cpu", "seconds": 0.0, "dtype": ["fp32"], **options}
        cli.bench(**given)
        return path

    run.path = path  # type: ignore[attr-defined]
    return run
