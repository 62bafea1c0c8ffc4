"""Plotly's script, as the package brings it, small enough for a mail.

4.8 MB become 2.0 MB: gzip in base64, which the page unpacks with the browser's own DecompressionStream (Chrome 80,
Firefox 113, Safari 16.4).
"""

import base64
import gzip
from functools import cache
from importlib.resources import files


@cache
def packed() -> str:
    try:
        script = files("plotly").joinpath("package_data/plotly.min.js").read_bytes()
    except (ImportError, OSError) as error:
        raise ImportError("reglet report needs plotly: pip install 'reglet[report]'") from error
    return base64.b64encode(gzip.compress(script, 9, mtime=0)).decode()
