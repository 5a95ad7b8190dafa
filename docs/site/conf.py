"""How Sphinx builds the site: all Markdown of the project, and the Python API from its docstrings."""

from __future__ import annotations

from ftfile import __version__

project = "ftfile"
copyright = "the ftfile developers"  # noqa: A001 - Sphinx names it
release = version = __version__
root_doc = "docs/site/index"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**"]
exclude_patterns = ["docs/site/start"]
autodoc_mock_imports = ["pyspark", "py4j"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}

# Links to a heading, as GitHub makes them.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]

autodoc_member_order = "alphabetical"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
# Docstrings put code in single backticks, as Markdown does.
default_role = "code"
napoleon_numpy_docstring = False

html_extra_path = ["start"]
html_theme = "furo"
html_title = f"ftfile {release}"
html_copy_source = False
html_show_sourcelink = False
