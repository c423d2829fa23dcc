"""The look of a provider, the same in every picture: ours stand out, what they are held against stays behind."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    color: str
    marker: str
    width: float = 1.3
    size: float = 4.0
    alpha: float = 0.85


def _ours(color: str, marker: str) -> Look:
    return Look(color, marker, width=2.3, size=6.0, alpha=1.0)


OURS = ("triton", "cuda", "public")
# Okabe and Ito's palette, told apart by every kind of colour vision.
KNOWN = {
    "eager": Look("#6b6b6b", "o"),
    "torchscript": Look("#cc79a7", "s"),
    "compile": Look("#e69f00", "^"),
    "triton": _ours("#0072b2", "D"),
    "cuda": _ours("#d55e00", "v"),
    "public": _ours("#7f2704", "d"),
    "liger": Look("#009e73", "P", size=5.0),
    "quack": Look("#332288", "X", size=5.0),
    "inductor": Look("#a6761d", "<", size=5.0),
}
OTHERS = (Look("#56b4e9", "*"), Look("#999933", "<"), Look("#b2df8a", ">"), Look("#f0e442", "h"))


def styles(providers: Iterable[str]) -> dict[str, Look]:
    """The look by provider; those that are not known share what is left, in order."""
    names = list(providers)
    strangers = [name for name in names if name not in KNOWN]
    left = {name: OTHERS[place % len(OTHERS)] for place, name in enumerate(strangers)}
    return {name: KNOWN.get(name) or left[name] for name in names}
