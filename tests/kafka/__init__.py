"""From Kafka to files: a broker, a producer, a stream into ftfile that is killed, and a proof over every offset."""
