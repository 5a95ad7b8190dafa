"""How Sphinx builds the site: all Markdown of the project, and the Python API from its docstrings."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sphinx.ext.autodoc.preserve_defaults import DefaultValue

from ftfile import __version__
from ftfile.core.context import SYSTEM

if TYPE_CHECKING:
    from sphinx.application import Sphinx

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
# Docstrings put code in single backticks, as Markdown does.
default_role = "code"
napoleon_numpy_docstring = False

html_extra_path = ["start"]
html_theme = "furo"
html_title = f"ftfile {release}"
html_copy_source = False
html_show_sourcelink = False


def setup(app: Sphinx) -> None:
    """Show the machine's clock and ids by their name: Sphinx would read names of defaults in the source.

    There, arguments that functions share are one.
    """
    app.connect("autodoc-before-process-signature", _name_defaults)


def _name_defaults(app: Sphinx, function: Any, bound: bool) -> None:  # noqa: ANN401, FBT001 - as Sphinx has them
    del app, bound
    with suppress(TypeError, ValueError):  # what has no signature
        signature = inspect.signature(function)
        parameters = [
            parameter.replace(default=DefaultValue("SYSTEM")) if parameter.default is SYSTEM else parameter
            for parameter in signature.parameters.values()
        ]
        if parameters != [*signature.parameters.values()]:
            function.__signature__ = signature.replace(parameters=parameters)
