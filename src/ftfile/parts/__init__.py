"""One part on storage: written through filters, read and verified."""
