"""Tables, rows and progress, as the command shows them."""
