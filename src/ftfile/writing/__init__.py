"""The write path that files and stores share."""
