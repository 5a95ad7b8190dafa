"""The place with rows from a Kafka broker, which is also killed and stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kafka.broker import Broker, connector_jars
from tests.soak.place import Place, guarded_server

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("KafkaPlace",)

SERVER = "broker"
TOPIC = "numbers"


class KafkaPlace(Place):
    """Spark on two cores and a local disk. Each input file is a record of a topic with one partition."""

    name = "kafka"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._broker: Broker | None = None

    @property
    def broker(self) -> Broker:
        """The running Kafka."""
        assert self._broker is not None
        return self._broker

    def start(self) -> None:
        """Start the broker with the data of earlier runs."""
        if self._broker is not None:
            return
        jars = connector_jars()
        servers = self.home / "servers"
        servers.mkdir(exist_ok=True)
        self._broker = Broker(servers)
        self.servers = {SERVER: guarded_server(self._broker, SERVER, self._broker.launch)}
        self._broker.create_topic(TOPIC, 1)
        self.settings = {"spark.jars": jars}
        self.kafka = {"kafka.bootstrap.servers": self._broker.address, "subscribe": TOPIC}

    def stop(self) -> None:
        """End the broker; its data stays."""
        if self._broker is not None:
            self._broker.stop()
            self._broker = None

    def feed(self) -> None:
        """Send the lines of the input files that are not in the topic."""
        files = sorted((self.home / "input").glob("[0-9]*.txt"))
        sent = self.broker.end_offsets(TOPIC)[0]
        producer = self.broker.start_producer(TOPIC)
        assert producer.stdin is not None
        for file in files[sent:]:
            producer.stdin.write(f"{file.stem}\t{file.read_text()}".encode())
        producer.stdin.close()
        self.broker.end_producer()

    def settle(self) -> None:
        """Wait until the broker accepts connections."""
        self.broker.wait()
