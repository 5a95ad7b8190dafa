"""Objects shipped from the driver to executors first check that their Python has the same ftfile."""

from __future__ import annotations

import dataclasses
import io
import pickle
from typing import TYPE_CHECKING, Any

from ftfile.core.version import __version__
from ftfile.spark.plain_errors import with_plain_errors
from ftfile.spark.worker import acknowledge_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# The methods that Spark calls, all but `read`, which yields: of readers, and of tasks that are ours.
_CALLED = frozenset(
    {
        *("schema", "reader", "streamReader", "writer", "streamWriter"),
        *("partitions", "pushFilters", "write", "commit", "abort"),
        *("initialOffset", "latestOffset", "reportLatestOffset", "prepareForTriggerAvailableNow"),
    }
)


class Shipped:
    """Pickles with a check of the executor's ftfile, so that only the same one unpickles it.

    The check travels as code and not by name: it is the driver's own, whatever is installed there. Errors of the
    methods that Spark calls are plain.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, method in [*vars(cls).items()]:
            if name in _CALLED or name == "read":
                setattr(cls, name, with_plain_errors(method, yields=name == "read"))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        file = io.BytesIO()
        pickler = _NotingPickler(file)
        pickler.dump((type(self), vars(self)))
        return _opener(), (__version__, pickler.fields, file.getvalue())

    @classmethod
    def arrived(cls, state: Mapping[str, Any]) -> Any:  # noqa: ANN401 - `Self` came with Python 3.11
        """Return the shipped object, and have Spark send a task the rest at once: its rows, or its share."""
        acknowledge_at_once()
        opened = cls.__new__(cls)
        vars(opened).update(state)
        return opened


class _NotingPickler(pickle.Pickler):
    """Notes the fields of all dataclasses that it pickles: two builds of one version may differ in them."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.fields: dict[str, list[str]] = {}

    def reducer_override(self, thing: Any) -> Any:  # noqa: ANN401 - whatever is pickled
        if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
            kind = type(thing)
            names = [field.name for field in dataclasses.fields(thing)]
            self.fields[f"{kind.__module__}:{kind.__qualname__}"] = names
        return NotImplemented


def _opener() -> Callable[..., Any]:
    """Return a function that is pickled by its code, since it has no name to be found by."""

    def difference(version: str, fields: dict[str, list[str]]) -> str | None:
        import dataclasses  # noqa: PLC0415 - code that is unpickled has no module around it
        import pkgutil  # noqa: PLC0415

        from ftfile.core import version as found  # noqa: PLC0415

        if found.__version__ != version:
            return f"ftfile {found.__version__} from {found.__file__}, and the driver {version}"
        for name, expected in fields.items():
            try:
                names = [field.name for field in dataclasses.fields(pkgutil.resolve_name(name))]
            except AttributeError:
                names = []
            if names != expected:
                return f"another build of ftfile {version} from {found.__file__} than the driver: {name} differs"
        return None

    def open_here(version: str, fields: dict[str, list[str]], content: bytes) -> Any:  # noqa: ANN401 - what was shipped
        import pickle  # noqa: PLC0415
        import platform  # noqa: PLC0415
        import sys  # noqa: PLC0415

        here = f"{sys.executable} on the host {platform.node()!r}"
        try:
            wrong = difference(version, fields)
            if wrong is not None:
                raise RuntimeError(
                    f"{here}, the Python of an executor, runs {wrong}. Install one version on the driver and on all "
                    "executors, or ship it with the application"
                )
            kind, state = pickle.loads(content)  # noqa: S301 - of our own driver
        except ImportError as error:
            package = (error.name or "ftfile").partition(".")[0]
            is_foreign = package != "ftfile" and package in {
                name.partition(":")[0].partition(".")[0] for name in fields
            }
            wanted = f"{package!r}, whose code the driver uses" if is_foreign else f"the ftfile {version} of the driver"
            raise ImportError(
                f"{here}, the Python of an executor, cannot load {wanted}: {error}. Install it there with what it "
                "needs, set PYSPARK_PYTHON to a Python that has it, or ship it with the application"
            ) from error
        return kind.arrived(state)

    return open_here
