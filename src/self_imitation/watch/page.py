"""The pages of a run and of an experiment. Their parts are in `assets/`; names reach them as data, never as HTML."""

from importlib import resources
from typing import Any

from self_imitation.report import web_page

SCRIPTS = ("run.js", "charts.js", "maze.js", "films.js", "watch.js")


def render(about: dict[str, Any]) -> str:
    """`about`: what the page's scripts find in `page.data`."""
    from markupsafe import Markup

    return web_page.render_page(
        f"{about['agent']} on {about['env']}",
        Markup(_read("body.html")),
        about,
        "\n".join(_read(name) for name in SCRIPTS),
        _read("watch.css"),
        contents=_contents(about),
        sources="'self'",
    )


def render_experiment(title: str) -> str:
    """The page with the table of an experiment's runs."""
    from markupsafe import Markup

    style = _read("watch.css") + _read("experiment.css")
    return web_page.render_page(
        title, Markup(_read("experiment.html")), {"title": title}, _read("experiment.js"), style, sources="'self'"
    )


def _contents(about: dict[str, Any]) -> list[tuple[str, str]]:
    sections = [("returns", "Returns")]
    if about["record"]:
        sections.append(("maze", "The maze") if about["maze"] else ("episodes", "Episodes"))
    if about["record"] and about["self_imitation"]:
        sections.append(("memory", "The replay buffer"))
    if about["self_imitation"]:
        sections += [("imitated", "What is imitated"), ("influence", "Influence on the policy")]
    return sections


def _read(name: str) -> str:
    return resources.files("self_imitation.watch").joinpath("assets", name).read_text(encoding="utf-8")
