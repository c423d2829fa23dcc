"""An option that takes every kind of an enum but one: an error for another names those alone."""

from enum import Enum
from typing import Any

import typer


def choice_option(but: Enum, otherwise: str, help: str) -> Any:
    """An option that takes the kinds of `but`'s enum, not itself; `otherwise` is said to whoever asks for another."""
    known = {str(kind.value): kind for kind in type(but) if kind is not but}

    def parse(text: str) -> Enum:
        if text not in known:
            raise typer.BadParameter(f"{text!r}: expected {' or '.join(known)}; {otherwise}")
        return known[text]

    return typer.Option(parser=parse, metavar=f"<{'|'.join(known)}>", help=help)
