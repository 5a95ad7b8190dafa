"""The command ``python -m tests.hdfs``: an HDFS for experiments, until it is interrupted."""

from __future__ import annotations

import argparse
import signal
import sys
import time

from tests.guarded import CannotStart
from tests.hdfs.minicluster import MiniCluster

__all__ = ()

POLL_S = 0.1


def main() -> int:
    """Start HDFS, print its addresses, wait, and stop it."""
    parser = argparse.ArgumentParser(prog="python -m tests.hdfs", description=main.__doc__)
    parser.add_argument("--datanodes", type=int, default=1, help="how many DataNodes (default: 1)")
    parser.add_argument("--delivered", action="store_true", help="with the 400 ms of closing a file that Hadoop has")
    options = parser.parse_args()
    delay = {"dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "400"} if options.delivered else {}
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        with MiniCluster(options.datanodes, delay) as cluster:
            print(f"native   {cluster.url}/out")
            print(f"WebHDFS  {cluster.web_url}/out")
            print(f"pages    {cluster.pages}")
            print(f"         export HADOOP_CONF_DIR={cluster.conf}")
            print("All its files are deleted at the end: press Ctrl-C", flush=True)
            # If the signal comes just before signal.pause(), that call would never return.
            while True:
                time.sleep(POLL_S)
    except CannotStart as error:
        print(f"hdfs: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("HDFS has ended, and its files are removed")
    return 0


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
