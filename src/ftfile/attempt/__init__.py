"""What any writer's tasks and driver do: identity, messages, fingerprints, staging, durability, schema change."""
