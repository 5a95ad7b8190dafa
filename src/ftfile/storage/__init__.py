"""Where bytes live: one small port, one driver per store, decorators for what cuts across."""
