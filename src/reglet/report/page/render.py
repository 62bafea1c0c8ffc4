"""Values into templates: Jinja2 escapes whatever is put in, so that a name is always text."""

from functools import cache
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
