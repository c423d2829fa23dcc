"""Text between two markers of a Markdown file, which a command renews and nobody edits."""

from pathlib import Path

from kernelyard.core.errors import UsageError
from kernelyard.core.whole_file import write_whole


def markers(name: str) -> tuple[str, str]:
    """The comments that begin and end the part of that name: `bench:softmax`."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def read(document: Path) -> str:
    """The text of a document, its lines ended as Python's are; raises UsageError where there is none."""
    if not document.is_file():
        said = "no file" if document.exists() else "no such file"
        raise UsageError(f"{document}: {said}; expected a Markdown file to hold the tables")
    try:
        return document.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{document}: no text in UTF-8; expected a Markdown file to hold the tables") from None


def demand(document: Path, name: str) -> None:
    """Raises UsageError where `replace` would: asked before the work whose results are to stand there."""
    split(document, read(document), name)


def split(document: Path, text: str, name: str) -> tuple[str, str, str]:
    """The text before the markers, from one through the other, and after them. Raises UsageError without both."""
    begin, end = markers(name)
    start, stop = text.find(begin), text.find(end)
    if not 0 <= start < stop:
        raise UsageError(f"{document}: expected {begin} and after it {end}")
    return text[:start], text[start : stop + len(end)], text[stop + len(end) :]


def replace(document: Path, name: str, body: str) -> None:
    """Put `body` between the markers of `name`."""
    before, _, after = split(document, read(document), name)
    begin, end = markers(name)
    write(document, f"{before}{begin}\n\n{body}\n\n{end}{after}")


def write(document: Path, text: str) -> None:
    """Put what `read` gave, renewed, in the document's place; lines end as there, in CRLF where all do."""
    content = document.read_bytes()
    lines = content.count(b"\n")
    crlf = lines and content.count(b"\r\n") == lines
    write_whole(document, text.replace("\n", "\r\n") if crlf else text)
