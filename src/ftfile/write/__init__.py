"""The work of any writer's tasks and driver: identity, messages, fingerprints, staging, durability, schema change."""
