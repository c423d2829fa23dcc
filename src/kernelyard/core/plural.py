"""A number and what it counts, as a line of text has it."""


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 problem`, `2 problems`; `many` where that is not `one` with an s, as in `2 samples were`."""
    return f"{count} {one if count == 1 else many or one + 's'}"
