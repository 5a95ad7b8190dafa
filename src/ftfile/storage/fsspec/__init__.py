"""Any file system of fsspec that passes a probe."""
