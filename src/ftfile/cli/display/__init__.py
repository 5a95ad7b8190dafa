"""Tables, rows, sizes and times as text, and progress, as the command shows them."""
