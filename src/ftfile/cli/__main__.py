"""`python -m ftfile.cli`, where the script `ftfile` is not on the path."""

from ftfile.cli.entry import main

main()
