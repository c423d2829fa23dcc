"""The stored baselines that a run is held against: folders of ours, files of KernelBench's."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from kernelyard.campaign.baselines import (
    FILES,
    LEDGER,
    Baseline,
    BaselineFolder,
    KernelBenchBaseline,
    Variant,
    read_kernelbench,
)
from kernelyard.core.errors import UsageError


@dataclass(frozen=True)
class Opponents:
    """What `--baseline` names."""

    ours: list[BaselineFolder] = field(default_factory=list)
    theirs: list[KernelBenchBaseline] = field(default_factory=list)

    @classmethod
    def read(cls, paths: Sequence[Path]) -> "Opponents":
        """Folders as `kernelyard baseline` or KernelBench leave them, or single files of KernelBench's.

        Raises UsageError for a path that is neither.
        """
        found = cls()
        for path in paths:
            files = _files(path) if path.is_dir() else [path]
            if (path / LEDGER).is_file():
                found.ours.append(BaselineFolder.read(path))
            elif not files:
                such = f", such as {below[0]}" if (below := _below(path)) else ""
                raise UsageError(
                    f"{path}: neither {LEDGER} nor {FILES[Variant.EAGER]}; expected a folder of baselines{such}"
                )
            found.theirs.extend(read_kernelbench(file) for file in files)
        return found

    def find(self, problem_sha256: str, dtype: str, device_name: str, train_mode: bool) -> Baseline | None:
        """A measurement of ours of that very text, dtype, kind of device and mode."""
        known = (folder.find(problem_sha256, dtype, device_name, train_mode) for folder in self.ours)
        return next((baseline for baseline in known if baseline is not None), None)

    def mean_ms(self, level: int, name: str) -> tuple[float | None, float | None]:
        """KernelBench's means of eager and of the fastest compiled variant; None where its files have none."""
        eager = [file.level(level).get(name) for file in self.theirs if _is_eager(file)]
        compiled = [file.level(level).get(name) for file in self.theirs if not _is_eager(file)]
        return _least(eager), _least(compiled)

    def names(self, level: int) -> dict[int, str]:
        """Problem files by number, as the baselines have them."""
        names = {name for file in self.theirs for name in file.level(level)}
        return {int(found[0]): name for name in sorted(names) if (found := re.match(r"\d+", name))}

    def fits(self, hardware: Sequence[str]) -> None:
        """Raises UsageError for a file of KernelBench's that was measured on anything but a run's one device."""
        for file, name in product(self.theirs, hardware):
            if others := [each for each in file.hardware if each != name]:
                raise UsageError(f"{file.path} is of {others[0]}, the run of {name}; expected one of the same device")


def _below(path: Path) -> list[Path]:
    """Folders of baselines in this one, where there is one for each kind of device."""
    return sorted(folder for folder in path.glob("*/") if (folder / LEDGER).is_file() or _files(folder))


def _files(folder: Path) -> list[Path]:
    """KernelBench's, which times more of torch.compile's modes than FILES has: the fastest may be any of them."""
    return sorted(path for path in folder.glob("baseline_time_torch*.json") if path.is_file())


def _is_eager(file: KernelBenchBaseline) -> bool:
    return "compile" not in Path(file.path).name


def _least(known: Sequence[float | None]) -> float | None:
    return min((each for each in known if each is not None), default=None)
