"""Steps when parts become visible."""
