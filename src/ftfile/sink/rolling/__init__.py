"""Parts that stay open over batches: when they end, and how they are made of their segments."""
