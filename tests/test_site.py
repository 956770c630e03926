"""The documentation site: built strictly, so that a broken link, anchor or docstring fails."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("mkdocs")
pytest.importorskip("mkdocstrings")
pytest.importorskip("material")
from mkdocs.commands.build import build
from mkdocs.config import load_config

import self_imitation
from self_imitation import registry
from self_imitation.config import TrainConfig
from self_imitation.settings import flatten

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


def test_every_public_name_is_on_a_reference_page(site):
    pages = "".join(page.read_text() for page in (site / "docs" / "reference").rglob("*.html"))
    missing = [name for name in self_imitation.__all__ if f'id="self_imitation.{name}"' not in pages]
    assert not missing


def test_every_argument_of_train_is_described(site):
    page = (site / "docs" / "reference" / "runs" / "index.html").read_text()
    described = page.split('id="self_imitation.train"')[1].split('id="self_imitation.resume"')[0]
    for name in ("env", "agent", "preset", "steps", "seeds", "settings", "callbacks"):
        assert re.search(rf"<b>(<code>)?{name}(</code>)?</b>", described), name


def test_every_setting_is_in_a_table(site):
    page = (site / "docs" / "reference" / "settings" / "index.html").read_text()
    components = {name: entry.component.Config() for name, entry in registry.components().items()}
    missing = [
        name for name in flatten(TrainConfig(components=components)) if f"<td><code>{name}</code></td>" not in page
    ]
    assert not missing


def test_pages_of_the_whole_repository_are_linked(site):
    page = (site / "docs" / "agents" / "index.html").read_text()
    assert 'href="../../results/systems/"' in page
    assert (site / "results" / "systems" / "index.html").is_file()
    assert (site / "examples" / "quickstart.py").is_file()


def test_pages_request_nothing_from_other_hosts(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loaded = re.findall(r'<(?:script|img|iframe|source)[^>]*\bsrc="?([^" >]+)', page.read_text())
        loaded += re.findall(r'<link[^>]*rel="?(?:stylesheet|preconnect|icon)[^>]*href="?([^" >]+)', page.read_text())
        outside = [target for target in loaded if re.match(r"(https?:)?//", target)]
        assert not outside, page
