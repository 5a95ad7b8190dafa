"""A monitor: directories that are followed, and where their numbers go."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ftfile.core.arguments import checked
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.core.units import parse_duration_s
from ftfile.tools.monitor.follower import Follower, Place
from ftfile.tools.monitor.metrics import Tally

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from ftfile.core.context import Context
    from ftfile.tools.monitor.publishers import Meter, PrometheusServer


__all__ = ("DIRECTORIES_MAX", "Monitor", "monitor")


# Directories that have series, at most: beyond, those that no query of the session writes to any more are left out.
DIRECTORIES_MAX = 64

_log = get_logger(__name__)


class Monitor:
    """Follows directories until it is closed; also a context manager. Safe for threads.

    Attributes:
        url: where Prometheus finds the metrics; None without a port.
    """

    def __init__(
        self,
        interval: str | timedelta = "10s",
        prometheus_port: int | None = None,
        address: str = "127.0.0.1",
        meter_provider: Any = None,  # noqa: ANN401 - of OpenTelemetry
        context: Context = SYSTEM,
    ) -> None:
        self.tally = Tally()
        self._interval_s = _checked_interval_s(interval)
        self._context = context
        self._followers: dict[str, Follower] = {}
        self._lock = threading.Lock()
        self._server: PrometheusServer | None = None
        self._meter: Meter | None = None
        if meter_provider is not None:
            from ftfile.tools.monitor.publishers import Meter  # noqa: PLC0415 - an extra

            self._meter = Meter(self.tally, meter_provider)
        if prometheus_port is not None:
            from ftfile.tools.monitor.publishers import PrometheusServer  # noqa: PLC0415 - an extra

            self._server = PrometheusServer(self.tally, prometheus_port, address)
        self.url = None if self._server is None else self._server.url

    @checked
    def watch(
        self, path: str | os.PathLike[str], *, key_provider: str | None = None, storage: Mapping[str, str] | None = None
    ) -> None:
        """Follow another directory; of one that is followed already, do nothing. See `ftfile.monitor`."""
        self.follow(Place(str(path), key_provider, storage), "watch")

    def follow(self, place: Place, user: str, names: Mapping[str, str] | None = None) -> Follower | None:
        """Return the follower of a directory, for a user of it until `leave`; None if there are too many.

        `names` are those of queries, by id.
        """
        removed: Follower | None = None
        with self._lock:
            follower = self._followers.get(place.url)
            if follower is None:
                if len(self._followers) >= DIRECTORIES_MAX:
                    unused = next((url for url, candidate in self._followers.items() if not candidate.users), None)
                    if unused is None:
                        _log.warning("%s is not followed: %d directories are", place.url, len(self._followers))
                        return None
                    removed = self._followers.pop(unused)
                follower = self._followers[place.url] = Follower(place, self.tally, self._context, self._interval_s)
                follower.start()
            follower.names.update(names or {})
            follower.users.add(user)
        # Without the lock: storage may take long, and nobody who asks for another directory shall wait for it.
        if removed is not None:
            removed.close()
            self.tally.forget(removed.url)
        follower.look()
        return follower

    def leave(self, url: str, user: str) -> None:
        """Note that a user of a directory has ended; its values stay while there is room."""
        with self._lock:
            if (follower := self._followers.get(url)) is not None:
                follower.users.discard(user)
        if follower is not None:
            follower.look()

    def look(self) -> None:
        """Bring all values up to date now, not only at the next interval."""
        with self._lock:
            followers = list(self._followers.values())
        for follower in followers:
            follower.look()

    def close(self) -> None:
        """End all threads, and the server; another call does nothing."""
        with self._lock:
            followers, self._followers = list(self._followers.values()), {}
        for follower in followers:
            follower.close()
        if self._meter is not None:
            self._meter.close()
        if self._server is not None:
            self._server.close()
            self._server = None

    def __enter__(self) -> Monitor:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@checked
def monitor(  # noqa: PLR0913 - all by name
    path: str | os.PathLike[str],
    *,
    prometheus_port: int | None = None,
    address: str = "127.0.0.1",
    meter_provider: Any = None,  # noqa: ANN401 - of OpenTelemetry
    interval: str | timedelta = "10s",
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
) -> Monitor:
    """Follow a directory, or a store, from any process, and give its numbers to Prometheus or OpenTelemetry.

    It counts the versions created from now on, by any process, reads the log at each interval, writes nothing,
    and logs one line for the new versions of an interval. `Monitor.watch(path)` adds directories, `close()` ends it.
    For the streams of a session, `ftfile.spark.listen(spark)` tells more.

    Args:
        path: as in `ftfile.open`; nothing needs to be there yet.
        prometheus_port: where to serve metrics, at `/metrics`; 0 takes a free port, which `Monitor.url` has. It needs
            `ftfile[prometheus]`. By default they are not served.
        address: on which it listens; by default for this host alone.
        meter_provider: of OpenTelemetry, such as `opentelemetry.metrics.get_meter_provider()`, with
            `ftfile[opentelemetry]`.
        interval: a duration with its unit, such as "10s", or a timedelta.
        key_provider: see `ftfile.open`.
        storage: likewise.

    Raises:
        ConfigError: an argument is wrong, the port is taken, or a package is not installed.
    """
    new_monitor = Monitor(interval, prometheus_port, address, meter_provider)
    new_monitor.watch(path, key_provider=key_provider, storage=storage)
    return new_monitor


def _checked_interval_s(interval: str | timedelta) -> float:
    try:
        seconds = interval.total_seconds() if isinstance(interval, timedelta) else parse_duration_s(interval)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise ConfigError(f"interval={interval!r}: it takes a duration with its unit, such as '10s', or a timedelta")
    return seconds
