"""Read, regularize or rewrite the blocks of any network by name, and remove every trace."""

from reglet.attach.attachment import Attachment, attach
from reglet.attach.compare import Compare
from reglet.attach.features import OnFeatures
from reglet.attach.select import Where, matching
from reglet.attach.tap import PerBlock
from reglet.attach.tokens import Layout
from reglet.attach.watch import Alteration, Watch, alter, watch

__all__ = [
    "Alteration",
    "Attachment",
    "Compare",
    "Layout",
    "OnFeatures",
    "PerBlock",
    "Watch",
    "Where",
    "alter",
    "attach",
    "matching",
    "watch",
]
