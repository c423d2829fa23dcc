"""KernelBench's dataset on the Hub: there, out of reach, or in the cache of the package `datasets`."""

import os
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_up_suite import checkout

from kernelyard.core.errors import UsageError
from kernelyard.suites.selection import Selection
from kernelyard.suites.suite import Suite

Rows = dict[str, list[dict[str, Any]]]


class Refused(Exception):
    """A stand-in for huggingface_hub's HfHubHTTPError: the Hub's answer to a request that it does not grant."""


class Hub(types.ModuleType):
    """A stand-in for the package `datasets`: what it reads from the Hub, and from its cache where it is offline."""

    def __init__(self, rows: Rows, cached: Rows) -> None:
        super().__init__("datasets")
        self.rows, self.cached = rows, cached
        self.config = types.SimpleNamespace(HF_HUB_OFFLINE=False)

    def load_dataset(self, name: str, *, split: str) -> list[dict[str, Any]]:
        assert name == "ScalingIntelligence/KernelBench"
        held = self.cached if self.config.HF_HUB_OFFLINE else self.rows
        if split not in held:
            raise ConnectionError("Couldn't reach the Hub\nand more lines")
        return held[split]


Stand = Callable[..., Hub]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Stand:
    def make(rows: Rows, *, cached: Rows | None = None, says: Exception | None = None) -> Hub:
        class HfApi:
            def dataset_info(self, name: str, *, timeout: float) -> None:
                assert name == "ScalingIntelligence/KernelBench"
                if says is not None:
                    raise says

        hub = Hub(rows, cached or {})
        asked, utils = types.ModuleType("huggingface_hub"), types.ModuleType("huggingface_hub.utils")
        asked.HfApi, utils.HfHubHTTPError = HfApi, Refused  # type: ignore[attr-defined]
        for module in (hub, asked, utils):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        return hub

    return make


def loaded(level: str) -> Suite:
    return Selection(source="huggingface", level=[level]).load("float32", "cpu")


def of_checkout(folder: Path) -> tuple[Suite, Rows]:
    """The first level of a checkout, and its rows as the Hub has them."""
    local = Selection(source=str(checkout(folder)), level=["1"]).load("float32", "cpu")
    rows = [
        {"code": entry.source.text, "level": 1, "name": entry.name.removesuffix(".py"), "problem_id": entry.number}
        for entry in reversed(local.entries)
    ]
    return local, {"level_1": rows}


def test_the_hubs_problems_are_those_of_a_checkout(
    tmp_path: Path, stand_in: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, rows = of_checkout(tmp_path)
    stand_in(rows)
    hub = loaded("1")
    assert hub.sha256 == local.sha256
    assert [entry.name for entry in hub.entries] == [entry.name for entry in local.entries]
    with pytest.raises(UsageError) as told:
        loaded("2")
    assert "level 2 cannot be had from the Hub (ConnectionError: Couldn't reach the Hub)" in str(told.value)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match="needs `pip install datasets`; or --source local PATH"):
        Selection(source="huggingface").load("float32", "cpu")
    (tmp_path / "broken/datasets").mkdir(parents=True)
    (tmp_path / "broken/datasets/__init__.py").write_text("import no_such_package_of_its")
    monkeypatch.delitem(sys.modules, "datasets")
    monkeypatch.syspath_prepend(str(tmp_path / "broken"))
    with pytest.raises(UsageError, match=r"which does not import here \(ModuleNotFoundError: .*no_such_package_of_its"):
        Selection(source="huggingface").load("float32", "cpu")


def test_out_of_reach_the_cache_alone_is_asked_and_the_reason_is_the_networks(tmp_path: Path, stand_in: Stand) -> None:
    local, rows = of_checkout(tmp_path)
    hub = stand_in({}, cached=rows, says=OSError("Name or service not known\nand more lines"))
    assert loaded("1").sha256 == local.sha256
    with pytest.raises(UsageError) as told:
        loaded("2")
    assert "level 2 cannot be had from the Hub (OSError: Name or service not known); expected" in str(told.value)
    assert hub.config.HF_HUB_OFFLINE is False


def test_a_hub_that_answers_is_in_reach_whatever_it_says(tmp_path: Path, stand_in: Stand) -> None:
    local, rows = of_checkout(tmp_path)
    stand_in(rows, says=Refused("503 Service Unavailable"))
    assert loaded("1").sha256 == local.sha256


def test_without_a_network_the_real_packages_are_soon_done_and_say_one_line(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    # The port of discarded messages: nobody listens.
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-m", "kernelyard", "problems", "list", "--source", "huggingface", "--level", "1"]
    began = time.monotonic()
    done = subprocess.run(command, env=os.environ | nowhere, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "level 1 cannot be had from the Hub (ConnectError" in done.stderr
    assert time.monotonic() - began < 20, "their own retries alone take 23 s"
