"""Reads the HTML pages of the tour and the showcase."""

from html.parser import HTMLParser


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.images, self.links, self.words = [], [], []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag == "img":
            self.images.append(attributes["src"])
        self.links += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self.words.append(data)


def read_page(text: str) -> _Page:
    """Returns the page's `images`, `links` (those of images, too) and `words`, the texts between tags."""
    page = _Page()
    page.feed(text)
    return page
