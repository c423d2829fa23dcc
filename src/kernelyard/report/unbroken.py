"""A table whose numbers and intervals stay whole: what has no room beside the others goes on in a table below."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

# Of box.SIMPLE: a column's padding and what stands before it; and the end of the line.
AROUND, END = 3, 1
# Letters of a name in one line at least, where it has as many.
NAME = 24


@dataclass(frozen=True)
class _Column:
    title: str
    cells: tuple[str, ...]
    named: bool
    """Folds like text; anything else only before the bracket of an interval."""

    @property
    def most(self) -> int:
        return _longest((self.title, *self.cells))

    @property
    def least(self) -> int:
        title = _longest(self.title.split())
        if self.named:
            return max(title, min(NAME, _longest([word for cell in self.cells for word in cell.split()])))
        return max(title, _longest([line for cell in self.cells for line in _stacked(cell).splitlines()]))


@dataclass(frozen=True)
class Unbroken:
    """Each table has the columns of `names`, and as many of `numbers` as the screen has room for."""

    names: tuple[str, ...]
    numbers: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        titles = (*self.names, *self.numbers)
        columns = [
            _Column(title, tuple(row[place] for row in self.rows), place < len(self.names))
            for place, title in enumerate(titles)
        ]
        names, left = columns[: len(self.names)], columns[len(self.names) :]
        while left:
            taken = 1
            while taken < len(left) and _spare([*names, *left[: taken + 1]], options.max_width) >= 0:
                taken += 1
            yield _table(names, left[:taken], options.max_width)
            left = left[taken:]


def _spare(columns: Sequence[_Column], room: int) -> int:
    return room - END - sum(AROUND + column.least for column in columns)


def _table(names: Sequence[_Column], numbers: Sequence[_Column], room: int) -> Table:
    """Intervals in their numbers' line where all have room for it; else below them, and what is left is the names'."""
    columns = [*names, *numbers]
    spare = _spare(columns, room)
    roomy = spare >= sum(column.most - column.least for column in columns)
    table = Table(box=box.SIMPLE)
    for column in columns:
        more = column.most - column.least
        if not roomy:
            more = max(0, min(spare, more)) if column.named else 0
        spare -= more
        width = column.least + more
        table.add_column(Text(column.title), justify="left" if column.named else "right", width=width, overflow="fold")
    for place in range(len(columns[0].cells)):
        if any(column.cells[place] for column in numbers):
            table.add_row(*(Text(_cell(column, place, roomy)) for column in columns))
    return table


def _cell(column: _Column, place: int, roomy: bool) -> str:
    text = column.cells[place]
    return text if roomy or column.named else _stacked(text)


def _longest(texts: Sequence[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _stacked(text: str) -> str:
    return text.replace(" (", "\n(")
