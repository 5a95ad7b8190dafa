"""`python -m ftfile.tools.cli`, where the script `ftfile` is not on the path."""

from ftfile.tools.cli.entry import main

main()
