"""The thread that copies the tokens of the driver's JVM, which Spark replaces, to a file for Python processes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.storage.hdfs.credentials.jvm_tokens import forget_tokens, keep_tokens

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The seconds between two looks at the tokens. Spark replaces them when a quarter of their renew interval is left.
LOOK_S = 10.0

_log = get_logger(__name__)


def process_of(spark: SparkSession) -> int:
    """Return the number of the process of a session's JVM."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the only way to the JVM
    return int(jvm.java.lang.ProcessHandle.current().pid())


class TokenKeeper:
    """Copies the tokens until `stop`; the first time before it returns. Does nothing without Hadoop's security."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - the only way to the JVM
        self._jvm = jvm
        self._process = process_of(spark)
        self._stopped = threading.Event()
        self._keeping = threading.Lock()
        self._users = jvm.org.apache.hadoop.security.UserGroupInformation
        if self._users.isSecurityEnabled():
            self._keep()
            threading.Thread(target=self._run, name="ftfile-tokens", daemon=True).start()

    def stop(self) -> None:
        """End the thread and delete the file; idempotent."""
        self._stopped.set()
        # A copy that has begun would create the file again.
        with self._keeping:
            forget_tokens(self._process)

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_S):
            with self._keeping:
                if not self._stopped.is_set():
                    self._keep()

    def _keep(self) -> None:
        try:
            credentials = self._users.getCurrentUser().getCredentials()
            if not credentials.numberOfTokens():
                return
            if keep_tokens(self._process, self._serialize(credentials)):
                _log.info("%d tokens of the driver's JVM are kept for Python", credentials.numberOfTokens())
        except (ConfigError, OSError) as error:
            _log.error("the tokens of the driver's JVM cannot be kept for Python: %s", error)
        except Exception as error:  # an error of Py4J if the JVM has ended
            _log.debug("the tokens of the driver's JVM cannot be read", exc_info=error)

    def _serialize(self, credentials: Any) -> bytes:  # noqa: ANN401 - of the JVM
        buffer = self._jvm.java.io.ByteArrayOutputStream()
        credentials.writeTokenStorageToStream(self._jvm.java.io.DataOutputStream(buffer))
        return bytes(buffer.toByteArray())
