"""Admissions in a file, a line each as its problem ends: what was looked at once is not looked at again.

A problem is found by its text and the dtype, so a record of another text is never found; one of the library's operators
by its definition, its reference and its workload, which its text names. What was skipped or not loaded is in the file
for readers, and is looked at again.
"""

from collections.abc import Iterable
from pathlib import Path

from kernelyard.core.errors import UsageError
from kernelyard.core.problem import Source
from kernelyard.core.record_file import append_record, read_records
from kernelyard.core.whole_file import check_place
from kernelyard.judge.admission import Admission


class AdmissionRecords:
    """The records of a file, of one kind of device; without a file, none are kept."""

    def __init__(self, path: Path | None, records: Iterable[Admission] = (), cut_short: bool = False) -> None:
        self.path, self.cut_short = path, cut_short
        records = list(records)
        kinds = sorted({record.environment.device_type for record in records})
        if len(kinds) > 1:
            raise UsageError(f"{path}: holds records of {' and '.join(kinds)}; expected those of one kind of device")
        self.device_type = kinds[0] if kinds else None
        """torch's name of it: cuda, cpu. None of a new file."""
        self._decided = {(each.problem_sha256, each.dtype): each for each in records if each.is_decided}

    @classmethod
    def read(cls, path: Path | None) -> "AdmissionRecords":
        """What a file holds; nothing where there is none. `cut_short`: a last line that a kill did is left out.

        Raises UsageError for a line that is no record, and where no file can be.
        """
        if path is None:
            return cls(None)
        check_place(path)
        return cls(path, *read_records(path, Admission, "kernelyard problem check --records"))

    def find(self, source: Source, dtype: str) -> Admission | None:
        """The newest that decides on this text, under its file's name; None where it is still to be looked at."""
        record = self._decided.get((source.sha256, dtype))
        return record and record.model_copy(update={"problem": source.name})

    def expect_more(self, device_type: str, left: int) -> None:
        """Raises UsageError where records of this kind of device would not fit, OSError where none can be written."""
        if self.path is None:
            return
        if self.device_type not in (None, device_type):
            raise UsageError(
                f"{self.path}: holds records of {self.device_type}, and {left} more would be of {device_type};"
                " expected a device of that kind, or another file"
            )
        self.path.open("ab").close()

    def add(self, record: Admission) -> None:
        """Keep one more."""
        if self.path is not None:
            append_record(self.path, record)
