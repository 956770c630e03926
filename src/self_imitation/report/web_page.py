"""Pages that open offline in any browser: style, script, plotly and data are all inside one HTML file.

The templates, the style sheet and the scripts are in `page/`.
"""

from collections.abc import Sequence
from functools import cache
from importlib import resources
from importlib.util import find_spec
from typing import TYPE_CHECKING

from self_imitation.errors import UsageError
from self_imitation.report import tables

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


PACKAGES = ("jinja2", "plotly", "rliable")
"""Of the extra `report`."""


def available() -> bool:
    """Whether the extra `report` is installed."""
    return all(map(find_spec, PACKAGES))


def require_packages() -> None:
    """Raise `UsageError` if the extra `report` is not installed."""
    for name in PACKAGES:
        if find_spec(name) is None:
            raise UsageError(f"pages need the package {name}: pip install 'self-imitation[report]'")


def render_page(
    title: str,
    body: "Markup",
    data: object,
    script: str = "",
    style: str = "",
    contents: Sequence[tuple[str, str]] = (),
    sources: str = "",
) -> str:
    """A complete HTML page.

    Args:
        title: text.
        body: the content of `<main>`, from `render`.
        data: what scripts find in `page.data`; anything that `json.dumps` takes, without NaN and infinities.
        script: JavaScript, after that of `page/page.js`.
        style: CSS, after that of `page/style.css`.
        contents: (id, label) of the sections that the table of contents lists.
        sources: from where scripts may load images and data, as in a Content-Security-Policy ("'self'"). Nowhere by
            default: the page makes no request.
    """
    require_packages()
    from jinja2.utils import htmlsafe_json_dumps
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    return render(
        "page.html",
        title=title,
        body=body,
        data=htmlsafe_json_dumps(data, allow_nan=False),
        plotly=Markup(get_plotlyjs()),
        script=Markup(f"{read('page.js')}\n{script}"),
        style=Markup(f"{read('style.css')}\n{style}"),
        contents=contents,
        sources=sources,
    )


def render(template: str, /, **values: object) -> "Markup":
    """A template from `page/`, filled in. Values are escaped, except for those of type `Markup`."""
    from markupsafe import Markup

    return Markup(_templates().get_template(template).render(values))


def read(name: str) -> str:
    """A file from `page/`."""
    return resources.files("self_imitation.report").joinpath("page", name).read_text(encoding="utf-8")


@cache
def _templates() -> "Environment":
    require_packages()
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("self_imitation.report", "page")
    templates = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.filters["text"] = tables.text
    return templates
