"""`reglet list`"""

from collections.abc import Sequence

from reglet.cli.words import OK, asks_help


def names(words: list[str]) -> int:
    from reglet import views
    from reglet.backbones.build import NAMES
    from reglet.data.load import SOURCES
    from reglet.engine.attachments import ATTACHED, ONE_PLACE
    from reglet.engine.build import LATENT, LOSSES, METHODS
    from reglet.engine.build_equivariant import EQUIVARIANT
    from reglet.tasks import TASKS

    rooms: dict[str, Sequence[str]] = {
        "data": SOURCES,
        "models": (*NAMES, "timm/NAME", "hf/NAME"),
        "methods": (*LOSSES, *METHODS),
        "losses": tuple(LOSSES),
        "regularizers": tuple(ONE_PLACE),
        "views": tuple(views.POLICIES),
        "equivariant": tuple(EQUIVARIANT),
        "latent": tuple(LATENT),
        "attach": tuple(ATTACHED),
        "tasks": tuple(TASKS),
    }
    if asks_help(words):
        print(f"reglet list [{' | '.join(rooms)}]")
        return OK
    for word in words:
        if word not in rooms:
            raise ValueError(f"reglet list knows {', '.join(rooms)}; got {word!r}")
    for room in words or rooms:
        print(f"{room:<13} {', '.join(rooms[room])}")
    return OK
