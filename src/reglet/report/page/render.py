"""Values into templates, and Plotly's script into the page.

Jinja2 escapes whatever is put in, so that a name is always text.  The script is the one that the package brings: 4.8 MB
become 2.0 MB, small enough for a mail.  It is gzip in base64, which the page unpacks with the browser's own
DecompressionStream (Chrome 80, Firefox 113, Safari 16.4).
"""

import base64
import gzip
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@cache
def environment() -> Environment:
    """What a template asks for and is not given is an error, not an empty place."""
    loader = PackageLoader("reglet.report", "page")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}  # NaN is no JSON
    made.globals["own"] = lambda name: Markup(loader.get_source(made, name)[0])  # style.css, page.js: as they are
    return made


def render(template: str, **values: Any) -> str:
    return environment().get_template(template).render(values)


@cache
def packed() -> str:
    try:
        script = files("plotly").joinpath("package_data/plotly.min.js").read_bytes()
    except (ImportError, OSError) as error:
        raise ImportError("reglet report needs plotly: pip install 'reglet[report]'") from error
    return base64.b64encode(gzip.compress(script, 9, mtime=0)).decode()
