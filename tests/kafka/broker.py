"""A Kafka broker that is its own controller, and Kafka's tools, as processes that are killed and restarted."""

from __future__ import annotations

import io
import json
import os
import socket
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tests.guarded import JVM, CannotStart, Guarded, free_ports, java, reserve_ports

if TYPE_CHECKING:
    import subprocess

__all__ = ("CONNECTOR", "Broker", "connector_jars")

ROOT = Path(__file__).parents[2]
BROKER = ROOT / ".jars/kafka"
CONNECTOR = ROOT / ".jars/kafka-connector"
TOOLS = "org.apache.kafka.tools"
PRODUCER = "producer"
TOOL_TIMEOUT_S = 600.0

# One broker has all replicas, so replication factors are 1. Its registration expires soon after it was killed.
SERVER = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={directory}/data
auto.create.topics.enable=false
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
initial.broker.registration.timeout.ms=600000
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.replication.factor=1
"""
# The broker numbers the producer's records and drops repeated ones, so a retry does not duplicate records.
IDEMPOTENT = """\
enable.idempotence=true
acks=all
retries=2147483647
max.in.flight.requests.per.connection=5
delivery.timeout.ms=900000
request.timeout.ms=30000
max.block.ms=900000
linger.ms=20
"""


class Broker(Guarded):
    """A running broker. A `with` block stops it and the producers that it started.

    Args:
        home: an existing directory for data and logs, which is kept at the end. A later broker with the same directory
            has the same topics at the same address.
    """

    def __init__(self, home: Path | None = None) -> None:
        self._command = [java(), *JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", _class_path()]
        drawn = home / "ports.json" if home else None
        is_formatted = drawn is not None and drawn.exists()
        if drawn is not None and is_formatted:
            ports = json.loads(drawn.read_text())
            reserve_ports(ports)
        else:
            ports = free_ports(2)
        self._port, controller = ports
        super().__init__("Kafka", home=home)
        try:
            if not is_formatted:
                self._format(controller)
            if drawn is not None:
                drawn.write_text(json.dumps(ports))
            self.start()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Broker:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    @property
    def address(self) -> str:
        """Return the bootstrap servers for clients."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the broker, possibly again with the same data, and wait until it accepts connections."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start the broker without waiting until it accepts connections."""
        self._launch("broker", [*self._command[:1], "-Xmx384m", *self._command[1:], "kafka.Kafka", "server.properties"])

    def wait(self) -> None:
        """Wait until the broker accepts connections."""
        self.wait_for("take connections", self._is_listening)

    def kill_broker(self) -> None:
        """Kill the broker with SIGKILL."""
        self.kill("broker")

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic, unless it exists."""
        self._run(
            f"{TOOLS}.TopicCommand", *self._at(topic), "--create", "--if-not-exists", "--partitions", str(partitions)
        )

    def start_producer(self, topic: str) -> subprocess.Popen[bytes]:
        """Start an idempotent producer: each line of its standard input is a key, a tab and a value.

        It ends after its input has ended and the broker has acknowledged every record.
        """
        more = ("--command-config", "producer.properties", "--message-send-max-retries", "2147483647")
        keyed = ("--reader-property", "parse.key=true")
        command = [*self._command, f"{TOOLS}.ConsoleProducer", *self._at(topic), *more, *keyed]
        return self._launch(PRODUCER, command, is_fed=True)

    def end_producer(self) -> None:
        """Wait for the end of the producer, whose input has ended.

        Raises:
            CannotStart: the producer failed.
        """
        code = self._servers.pop(PRODUCER).wait(TOOL_TIMEOUT_S)
        if code != 0:
            raise CannotStart(f"the producer ended with {code}: {self._last_words(PRODUCER)}")

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return, by partition, the offset after its last record, read with Kafka's tool."""
        printed = self._run(f"{TOOLS}.GetOffsetShell", *self._at(topic)).splitlines()
        return {int(partition): int(end) for _, partition, end in (line.rsplit(":", 2) for line in printed)}

    def read_topic(self, topic: str, records: int) -> pa.Table:
        """Return the columns partition, offset, key and value of all existing records, read with Kafka's consumer."""
        shown = [f"print.{what}=true" for what in ("partition", "offset", "key", "value")]
        properties = [word for each in shown for word in ("--formatter-property", each)]
        bounds = ("--from-beginning", "--max-messages", str(records), "--timeout-ms", "300000")
        printed = self._run(f"{TOOLS}.consumer.ConsoleConsumer", *self._at(topic), *properties, *bounds)
        names = ["partition", "offset", "key", "value"]
        table = csv.read_csv(
            io.BytesIO(printed.encode()),
            csv.ReadOptions(column_names=names),
            csv.ParseOptions(delimiter="\t", quote_char=False),
            csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
        numbers = [pc.cast(pc.replace_substring_regex(table[name], r"^\w+:", ""), pa.int64()) for name in names[:2]]
        return pa.table([*numbers, table["key"], table["value"]], names)

    def _format(self, controller: int) -> None:
        settings = SERVER.format(port=self._port, controller=controller, directory=self.directory)
        (self.directory / "server.properties").write_text(settings)
        (self.directory / "producer.properties").write_text(IDEMPOTENT)
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        self._run("kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", cluster, "-c", "server.properties")

    def _at(self, topic: str) -> tuple[str, ...]:
        return ("--bootstrap-server", self.address, "--topic", topic)

    def _run(self, main: str, *arguments: str) -> str:
        return self._complete(main.rpartition(".")[2], [*self._command, main, *arguments], TOOL_TIMEOUT_S)

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


def connector_jars() -> str:
    """Return the value of `spark.jars` with which Spark reads Kafka, without access to a repository.

    Raises:
        CannotStart: the jars are missing.
    """
    return ",".join(jar.as_uri() for jar in _jars(CONNECTOR, "kafka-connector"))


def _class_path() -> str:
    return os.pathsep.join(map(str, _jars(BROKER, "kafka")))


def _jars(directory: Path, name: str) -> list[Path]:
    found = sorted(directory.glob("*.jar"))
    if not found:
        raise CannotStart(
            f"there are no jars in {directory}: run .ci/jars {name}, as `make demo-kafka` and `make test` do. It needs "
            "Maven the first time: install it (apt-get install maven, brew install maven), and put mvn on the PATH"
        )
    return found
