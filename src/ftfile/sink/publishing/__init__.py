"""What happens when parts become visible."""
