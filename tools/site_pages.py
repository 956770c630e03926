"""Hook of MkDocs: the pages of the documentation site, from all over the repository.

Every page has the path that it has in the repository: a link such as ../results/sparse/README.md leads to the same
page here and there.
"""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PATTERNS = (
    "*.md",
    "LICENSE",
    "docs/**/*.*",
    "examples/*.*",
    "examples/notebooks/*.ipynb",
    "results/**/*.md",
    "results/**/*.png",
    "results/*/*.csv",
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    root = Path(config.config_file_path).parent
    pages = [path for pattern in PATTERNS for path in sorted(root.glob(pattern))]
    of_theme = [file for file in files if file.src_dir != config.docs_dir]
    own = [File.generated(config, path.relative_to(root).as_posix(), abs_src_path=str(path)) for path in pages]
    return Files([*of_theme, *own])
