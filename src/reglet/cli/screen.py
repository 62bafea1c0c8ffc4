"""Where commands print: names of classes, domains and files come out as they are."""

from rich.console import Console


def screen(*, stderr: bool = False) -> Console:
    """Without rich's markup, to which a class named [photo] would be a style, and without colours for numbers."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)
