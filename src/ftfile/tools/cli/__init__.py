"""The command `ftfile`: what Python's functions do, for people and scripts. Needs the extra `ftfile[cli]`."""
