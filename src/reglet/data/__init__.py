"""Where images come from."""

from reglet.data.digits import Digits as Digits
from reglet.data.digits import canvas_digits as canvas_digits
