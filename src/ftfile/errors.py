"""All errors that ftfile raises, under a name that stays; docs/errors.md lists which is raised where."""

from ftfile.core.errors import *  # noqa: F403 - and nothing else
from ftfile.core.errors import __all__ as __all__  # noqa: PLC0414 - read by type checkers
