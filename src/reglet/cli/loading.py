"""A command reads its words first, and answers a mistake at once.  What it computes with is imported after that."""

from importlib import import_module

from reglet import progress


def load(module: str) -> None:
    """Imports the module, which may take seconds, and shows that."""
    with progress.work("loading"):
        import_module(module)
