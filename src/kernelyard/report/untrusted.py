"""Text that a stranger wrote, made harmless to look at."""

import unicodedata

LONGEST_TEXT = 4000


def visible(text: str, longest: int = LONGEST_TEXT) -> str:
    """Control, format and surrogate characters spelled out but line ends kept; a flood is cut.

    Raw, an escape sequence could repaint a terminal, and a bidi character reorder a page.
    """
    cut = text if len(text) <= longest else text[:longest] + "…"
    return "".join(
        f"\\u{ord(character):04x}"
        if character != "\n" and unicodedata.category(character) in ("Cc", "Cf", "Cs")
        else character
        for character in cut
    )
