"""The command `ftfile`, which offers the Python functions to people and scripts. It needs the extra `ftfile[cli]`."""
