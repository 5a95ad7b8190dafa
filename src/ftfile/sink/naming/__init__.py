"""What parts are called."""
