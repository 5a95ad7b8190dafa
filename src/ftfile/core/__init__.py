"""Values and rules that every layer shares; standard library only, no I/O."""
