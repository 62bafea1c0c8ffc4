"""Group elements and their actions on images and token maps."""

from reglet.groups.action import act as act
from reglet.groups.action import act_on_tokens as act_on_tokens
from reglet.groups.d4 import D4 as D4
from reglet.groups.resize import resize as resize
from reglet.groups.resize import resize_tokens as resize_tokens
from reglet.groups.symmetry import Element as Element
from reglet.groups.symmetry import Symmetry as Symmetry
from reglet.groups.symmetry import align as align
from reglet.groups.symmetry import relative as relative
from reglet.groups.symmetry import transform as transform
