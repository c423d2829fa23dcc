"""Files of records, a line of JSON each, whose writer may be killed at any moment and may not be the only one."""

import fcntl
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from kernelyard.core.errors import UsageError

AnyRecord = TypeVar("AnyRecord", bound=BaseModel)


def read_records(path: Path, kind: type[AnyRecord], writer: str) -> tuple[list[AnyRecord], bool]:
    """What a file holds, nothing of a new one, and whether a last line was left out that a kill has cut short.

    Raises UsageError for a line that is no record of `kind`; `writer` is the command that writes them.
    """
    if not path.exists():
        return [], False
    with path.open("rb") as file:
        # What another process is writing is no line that a kill cut short.
        fcntl.flock(file, fcntl.LOCK_SH)
        whole, _, rest = file.read().rpartition(b"\n")
    records = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            records.append(kind.model_validate_json(line))
        except ValidationError as error:
            raise UsageError(
                f"{path}:{number}: no {kind.__name__.lower()} ({_why(error, kind)}); expected what `{writer}` writes"
            ) from None
    return records, bool(rest)


def append_record(path: Path, record: BaseModel) -> None:
    """One more, on disk at once, in the place of what a kill has cut short."""
    line = record.model_dump_json().encode() + b"\n"
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(line)


def _why(error: ValidationError, kind: type[BaseModel]) -> str:
    """The first fault, and the field of ours that it is in: other names are the file's, and may be anything."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = "".join(f"{name}: " for name in first["loc"][:1] if name in kind.model_fields)
    return field + first["msg"].removeprefix("Value error, ")
