"""File systems in images, and what this machine lacks for them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import shutil
import stat
import subprocess
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ("FILE_SYSTEMS", "WITHOUT_ORDER", "Unmountable", "make_image", "missing", "mounted", "present")

# Of each file system: the size of an image, the arguments of mkfs, the options of mount, of which one is drawn.
FILE_SYSTEMS = {
    "ext4": (
        32 << 20,
        ("-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
        ("", "data=writeback", "nodelalloc"),
    ),
    "xfs": (320 << 20, ("-q", "-f"), ("nouuid",)),
    "btrfs": (128 << 20, ("-q", "-f"), ("",)),
}
# A sync of a file can make its name durable without earlier changes of its directory.
WITHOUT_ORDER = {"btrfs"}

LOOP_MAJOR, LOOP_CTL_ADD = 7, 0x4C80
LOOPS = 1 << 10  # their numbers are from here on, where no other program takes a free one
_mounts = itertools.count()


class Unmountable(Exception):
    """The kernel refuses the file system of an image."""


def missing() -> str:
    """Return what power cuts need and this machine lacks; empty if nothing is missing."""
    if os.geteuid() != 0:
        return "root"
    for device in ("/dev/fuse", "/dev/loop-control"):
        try:
            os.close(os.open(device, os.O_RDWR))
        except OSError as error:
            return f"{device} ({error.strerror})"
    for program in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(program) is None:
            return program
    return ""


def present() -> list[str]:
    """Return the file systems that this machine can make."""
    return [name for name in FILE_SYSTEMS if shutil.which(f"mkfs.{name}")]


def make_image(path: Path, file_system: str) -> None:
    """Make an image with an empty file system."""
    size_bytes, arguments, _ = FILE_SYSTEMS[file_system]
    with path.open("wb") as file:
        file.truncate(size_bytes)
    run([f"mkfs.{file_system}", *arguments, str(path)])


@contextlib.contextmanager
def mounted(disk: Path, place: Path, file_system: str, options: str = "") -> Iterator[None]:
    """Mount a disk by a loop device, which the kernel frees after the block.

    Raises:
        Unmountable: the kernel refuses the file system.
    """
    place.mkdir(exist_ok=True)
    words = ",".join(filter(None, [f"loop={loop_of(place)}", options]))
    try:
        run(["mount", "-t", file_system, "-o", words, str(disk), str(place)])
    except subprocess.CalledProcessError as error:
        raise Unmountable(error.stderr.decode().strip()) from error
    try:
        yield
    finally:
        unmount(place)


def loop_of(place: Path) -> str:
    """Return a loop device that only disks at this place use, another one than that of the mount before."""
    number = LOOPS + 2 * (zlib.crc32(str(place).encode()) % LOOPS) + next(_mounts) % 2
    device = f"/dev/loop{number}"
    if not Path(device).exists():
        control = os.open("/dev/loop-control", os.O_RDWR)
        try:
            with contextlib.suppress(FileExistsError):
                fcntl.ioctl(control, LOOP_CTL_ADD, number)
        finally:
            os.close(control)
        with contextlib.suppress(FileExistsError):  # /dev is mostly one in which the kernel makes the node
            os.mknod(device, 0o600 | stat.S_IFBLK, os.makedev(LOOP_MAJOR, number))
    return device


def unmount(place: Path) -> None:
    """Unmount a disk, also if a process of the machine looks at it for a moment."""
    for _ in range(50):
        done = subprocess.run(["umount", str(place)], check=False, capture_output=True)
        if not done.returncode:
            return
        subprocess.run(["sleep", "0.1"], check=False)
    subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)
    raise OSError(errno.EBUSY, done.stderr.decode().strip(), str(place))


def run(command: Sequence[str]) -> None:
    """Run a program."""
    subprocess.run(command, check=True, capture_output=True)
