"""The entry point of the script `ftfile`, and of `python -m ftfile.tools.cli` if the script is not on the PATH."""

import os
import sys

MISSING = "the command ftfile needs packages that are not installed ({}): pip install 'ftfile[cli]'"


def main() -> None:
    """Run the command with the arguments of this process, and exit with a code of `tools.cli.failures`."""
    try:
        import rich  # noqa: F401 - typer imports it late

        from ftfile.tools.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"typer", "rich"}:
            raise
        sys.exit(MISSING.format(error.name))
    try:
        app(prog_name="ftfile")
    except SystemExit as ended:
        if isinstance(ended.code, int) and "pyarrow" in sys.modules:
            sys.stdout.flush()
            # At Python's normal exit, an Arrow thread that still frees buffers would abort the process:
            # apache/arrow#34314.
            os._exit(ended.code)
        raise


if __name__ == "__main__":
    main()
