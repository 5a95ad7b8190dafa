"""The sink of a store: the steps of a batch on the driver."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from msgspec import structs

from ftfile.core.errors import ConfigError, NotFound, SchemaError
from ftfile.core.logs import get_logger
from ftfile.kv.config import StoreConfig
from ftfile.kv.driver import StoreChange, body_of, definition_after, refuse_operator
from ftfile.kv.task import StoreTaskSteps
from ftfile.kv.upkeep.automatic import vacuum_if_due
from ftfile.log.directory import check_foreign_tables, check_is_store, check_outside_directories, list_new_directory
from ftfile.log.format import layout
from ftfile.writing.messages import segments_of
from ftfile.writing.options import check_staged_names
from ftfile.writing.sink import DirectoryCheck, PreparedBatch, Sink
from ftfile.writing.spark_checkpoint import checkpoint_table_change

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Author, Body
    from ftfile.log.protocol import Committed
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.writing.messages import TaskCommit


# Runs per bucket and batch above which the record and its jobs cost more than the rows.
MANY_RUNS = 4

_log = get_logger(__name__)


class StoreSink(Sink[StoreConfig]):
    """The sink that writes rows as runs; vacuums the store after a commit if a vacuum is due."""

    __slots__ = ()

    def check_directory(
        self,
        config: StoreConfig,
        log: CommitLog,
        read_head: Callable[[], LogState],
        is_repetition: Callable[[LogState], bool],
    ) -> DirectoryCheck[StoreConfig]:
        """See `Sink.check_directory`."""
        check_staged_names(config.path, config.hidden_chain, log.fs.capabilities)
        log.fs.prove(layout.META)
        head = read_head()
        if head.version < 0:
            check_outside_directories(config.path, dict(config.common.storage.client_settings), log.fs.context)
            list_new_directory(log.fs, config.path)
            with contextlib.suppress(NotFound):
                log.check_layout()
        else:
            check_foreign_tables(log, head, config.path)
        check_is_store(head, config.path)
        refuse_operator(head, config.common.transaction)
        try:
            definition_after(config, head)
        except (ConfigError, SchemaError):
            if not is_repetition(head):
                raise
        return DirectoryCheck(config, head, {})

    def task_steps(self) -> StoreTaskSteps:
        """See `Sink.task_steps`."""
        return StoreTaskSteps()

    def prepare(self, config: StoreConfig, author: Author, messages: list[TaskCommit], log: CommitLog) -> PreparedRuns:
        """See `Sink.prepare`."""
        return PreparedRuns(config, author, messages, log)


class PreparedRuns(PreparedBatch[StoreConfig]):
    """The runs of the checked messages of all tasks. After they are recorded, the store is vacuumed if a vacuum is due.

    Raises:
        ConfigError: the definition of the store was changed since the tasks were planned.
    """

    def __init__(self, config: StoreConfig, author: Author, messages: Sequence[TaskCommit], log: CommitLog) -> None:
        super().__init__(config, author, messages, log)
        # Spark rebuilds the settings of a stream for the commit.
        definition_key = config.definition_key
        if any(message.definition not in {None, definition_key} for message in messages):
            raise ConfigError(
                f"path={config.path!r}: the definition of the store changed while a batch was written, for example by "
                "kv.rebucket or an overwrite: start the query again, and the batch is written with the new definition"
            )
        runs, buckets = sum(len(message.segments) for message in messages), config.definition.buckets
        if runs > MANY_RUNS * buckets:
            _log.warning(
                "a batch writes %(runs)d runs for %(buckets)d buckets, because its tasks have rows of all buckets. For "
                "fewer and larger runs, use fewer tasks, or "
                'repartition(n, expr("pmod(xxhash64(%(keys)s), %(buckets)d)"))',
                {"runs": runs, "buckets": buckets, "keys": ", ".join(config.definition.bucket_by)},
            )

    def body(self, head: LogState, _: Callable[[], Snapshot]) -> Body:
        """See `PreparedBatch.body`."""
        common = self.config.common
        refuse_operator(head, common.transaction)
        runs = tuple(segments_of(self.messages, "", {"committedMs": self.committed_ms}))
        change = StoreChange(runs=runs, rewrites=tuple(self.rewrites), failed=self.failed, tasks=len(self.messages))
        body = body_of(self.config, self.log, head, change)
        place = checkpoint_table_change(head, self.author, common.checkpoint)
        return structs.replace(
            body,
            dead_letters=self.letters,
            user_metadata=common.user_metadata,
            metrics=self.metrics | body.metrics,
            tables=body.tables | place,
        )

    def after_commit(self, _: Committed) -> None:
        """Vacuum the store, if a vacuum is due."""
        vacuum_if_due(self.config, self.log)
