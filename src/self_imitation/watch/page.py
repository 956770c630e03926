"""The page of a run. Its parts are in `assets/`; what the run is called reaches it as data, never as HTML."""

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
