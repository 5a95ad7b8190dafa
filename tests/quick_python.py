"""Python processes of Spark that start in milliseconds: forks of one that has imported what they need.

What Spark starts as its Python hands its arguments, its environment and its standard streams over, and waits for the
end of the fork. Where there is nobody to fork, it becomes the plain interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import marshal
import os
import runpy
import secrets
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ("VARIABLE", "start")

ROOT = Path(__file__).parents[1]
# Has the name of the socket, which is no file.
VARIABLE = "FTFILE_TEST_FORKS"
# The threads that these start, of OpenBLAS and of jemalloc, are ready for forks.
# Not what is run as a main module. Older Sparks have not all of them.
PRELOADED = (
    *("pandas", "pyarrow.dataset", "pyarrow.parquet", "ftfile.spark.stream_reader", "ftfile.spark.writers"),
    *("pyspark.worker", "pyspark.sql.worker.create_data_source", "pyspark.sql.worker.plan_data_source_read"),
    *("pyspark.sql.worker.python_streaming_sink_runner", "pyspark.sql.worker.write_into_data_source"),
)
# Runs without `site`, and imports what is built in.
ASKS = """\
import marshal, os, sys
from _socket import AF_UNIX, SCM_RIGHTS, SOL_SOCKET, socket
asked = marshal.dumps((sys.argv[1:], dict(os.environ), os.getcwd()))
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
forks = socket(AF_UNIX)
try:
    assert sys.argv[1] == "-m"
    forks.connect(chr(0) + os.environ["{variable}"])
    forks.sendmsg([len(asked).to_bytes(4, "big")], [(SOL_SOCKET, SCM_RIGHTS, streams)])
except (AssertionError, KeyError, OSError):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
forks.sendall(asked)
os._exit(forks.recv(1) != b"0")
"""


def start(directory: Path) -> None:
    """Let what Spark starts be forked until this process ends; call it before the JVM starts. Idempotent.

    Args:
        directory: for the program that Spark takes for its Python.
    """
    if VARIABLE in os.environ:
        return
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if sys.platform != "linux":  # elsewhere each socket is a file
        return
    (directory / "asks.py").write_text(ASKS.format(variable=VARIABLE, python=sys.executable))
    program = directory / "python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{directory}/asks.py" "$@"\n')
    program.chmod(0o755)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = str(program)
    os.environ[VARIABLE] = f"ftfile-{secrets.token_hex(16)}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{os.environ[VARIABLE]}")
        listener.listen(64)
        command = [sys.executable, "-m", __name__, str(listener.fileno())]
        inherited: Any = {"cwd": ROOT, "env": os.environ | {"PYTHONHASHSEED": "0"}, "pass_fds": [listener.fileno()]}
        server = subprocess.Popen(command, stdin=subprocess.PIPE, **inherited)
    # The end of its input is the end of the server.
    atexit.register(server.communicate)


def main(listener: socket.socket) -> None:
    """Serve requests for forks until the owner has ended."""
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        asking, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            become(asking)
            return
        asking.close()


def become(asking: socket.socket) -> None:
    """Be the process that was asked for."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(asking, 4, 3)
    arguments, variables, directory = marshal.loads(received(asking, int.from_bytes(size, "big")))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv, sys.path[0] = arguments[1:], directory
    try:
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise
    asking.send(b"0")


def received(asking: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        content += asking.recv(size - len(content))
    return content


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
