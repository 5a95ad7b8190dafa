"""How far an operation is, on stderr while that is a terminal; nothing elsewhere."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from ftfile.cli.display.tables import console
from ftfile.core.human_text import bytes_text, duration_text

OnProgress: TypeAlias = "Callable[[Any], object] | None"


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[OnProgress]:
    """Give the function that an operation calls with its progress; None where nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.fields[far]}"))
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None, far="")

        def show(now: Any) -> None:  # noqa: ANN401 - a Progress of any operation
            left = "" if now.left_s is None else f", {duration_text(now.left_s)} left"
            size = f", {bytes_text(now.done_bytes)} of {bytes_text(now.total_bytes)}" if now.total_bytes else ""
            far = f"{now.done:,} of {now.total:,} {now.unit}{size}{left}"
            done, total = (now.done_bytes, now.total_bytes) if now.total_bytes else (now.done, now.total)
            bar.update(task, description=now.operation, total=max(total, 1), completed=done, far=far)

        yield show


def waiting(what: str) -> contextlib.AbstractContextManager[object]:
    """Show that something goes on which cannot tell how far it is."""
    return console(stderr=True).status(f"{what} …") if sys.stderr.isatty() else contextlib.nullcontext()
