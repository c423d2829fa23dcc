"""A page as a browser takes it apart."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """Tags, attributes, text and scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        (self.scripts if self.tags[-1:] == ["script"] else self.words).append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())
