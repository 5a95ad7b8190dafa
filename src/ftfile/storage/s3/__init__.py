"""Object stores with the S3 protocol."""
