"""Where images come from."""

from reglet.data.digits import Digits as Digits
from reglet.data.digits import canvas_digits as canvas_digits
from reglet.data.images import Images as Images
from reglet.data.load import load as load
from reglet.data.load import load_pair as load_pair
from reglet.data.memory import InMemory as InMemory
from reglet.data.part import Part as Part
