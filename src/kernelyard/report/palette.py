"""The colour and marker of a backend, the same in every picture."""

from collections.abc import Iterable

# Okabe and Ito's palette, told apart by every kind of colour vision.
BACKENDS = {
    "eager": ("#6b6b6b", "o"),
    "torchscript": ("#cc79a7", "s"),
    "compile": ("#e69f00", "^"),
    "triton": ("#0072b2", "D"),
    "cuda": ("#d55e00", "v"),
}
OTHERS = (("#009e73", "P"), ("#56b4e9", "X"), ("#a6761d", "*"), ("#332288", "<"))


def styles(providers: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Colour and matplotlib marker by provider; those that are no backend share what is left, in order."""
    names = list(providers)
    strangers = [name for name in names if name not in BACKENDS]
    left = {name: OTHERS[place % len(OTHERS)] for place, name in enumerate(strangers)}
    return {name: BACKENDS.get(name) or left[name] for name in names}
