"""Mistakes of the drivers of HDFS, and of how durable files are made."""

from __future__ import annotations

from tests.mutants.mutant import dropped, wrong

DRIVERS = "tests/unit/fs/test_hdfs_drivers.py"
CLOSE = "tests/unit/fs/test_hdfs_native_close.py"
CHECKSUM = "tests/unit/fs/test_hadoop_checksum.py"
DURABILITY = "tests/unit/sink/test_durability.py"
DEADLINE = "tests/unit/fs/test_deadline.py"
NODES = "tests/unit/fs/test_namenodes.py"
TOKENS = "tests/unit/fs/test_hadoop_tokens.py"

ON_HDFS = (
    dropped(
        "an exclusive file on HDFS is not measured",
        "fs/hadoop.py",
        "self._compare(path, temporary, content)",
        DRIVERS,
    ),
    wrong(
        "tries of an exclusive file on HDFS share a name", "fs/hadoop.py", "]}/.{SYSTEM_IDS.unique()}", "]}/.0", DRIVERS
    ),
    wrong(
        "the native driver does not sync a record",
        "fs/hdfs_native.py",
        "            file.writer.hsync()\n",
        "",
        DRIVERS,
    ),
    dropped(
        "the native driver writes erasure-coded files",
        "fs/hdfs_native.py",
        'self.do("create", path, lambda: self._require_replicated(full))',
        DRIVERS,
    ),
    wrong(
        "the native driver writes erasure-coded records",
        "fs/hdfs_native.py",
        "            self._require_replicated(full)\n            file.writer.write(content)",
        "            file.writer.write(content)",
        DRIVERS,
    ),
    wrong(
        "the native driver takes one replica for erasure coding",
        "fs/hdfs_native.py",
        " and not client.set_replication(full, 1)",
        "",
        DRIVERS,
    ),
    wrong(
        "the native driver's rename replaces the target",
        "fs/hdfs_native.py",
        "rename(full_source, full_target, overwrite=False)",
        "rename(full_source, full_target, overwrite=True)",
        DRIVERS,
    ),
    wrong(
        "the native driver does not wait where it reads",
        "fs/hdfs_native_files.py",
        'self._fs.patiently(lambda: self._fs.run("read_at", self.path, read, data_bytes=length))',
        'self._fs.run("read_at", self.path, read, data_bytes=length)',
        DRIVERS,
    ),
    wrong(
        "the native driver begins a file anew that may be emptied late",
        "fs/hdfs_native_files.py",
        "if not begun.is_set():",
        "if False:",
        f"{DRIVERS}::TestNativeStreams::test_it_is_not_where_nobody_knows_whether_it_was_begun",
    ),
    wrong(
        "the native driver begins a file anew of which it has not all",
        "fs/hdfs_native_files.py",
        "self._sent = None if len(self._sent) + len(data) > KEPT_BYTES else self._sent + data",
        "self._sent = self._sent if len(self._sent) + len(data) > KEPT_BYTES else self._sent + data",
        DRIVERS,
    ),
    wrong(
        "bytes that changed on the way by WebHDFS are a file",
        "fs/webhdfs.py",
        "elif found != checksum.digest():",
        "elif False:",
        CHECKSUM,
    ),
    wrong(
        "a file by WebHDFS is not compared when it is closed",
        "fs/webhdfs.py",
        "        if self._checksum is not None:\n            self._fs.verify(",
        "        if False:\n            self._fs.verify(",
        CHECKSUM,
    ),
    wrong(
        "a record by WebHDFS is not compared",
        "fs/webhdfs.py",
        "if content and checksum is not None:",
        "if False:",
        CHECKSUM,
    ),
    wrong(
        "what HDFS stores as other bytes is compared with what was sent",
        "fs/webhdfs.py",
        'if status.get("encBit") or',
        "if",
        CHECKSUM,
    ),
    wrong(
        "the checksum of a file forgets where chunks end",
        "fs/hadoop_checksum.py",
        "        self._rest += view[whole:]\n",
        "",
        CHECKSUM,
    ),
    wrong(
        "WebHDFS is asked for no sync", "fs/webhdfs.py", '"CREATE,OVERWRITE,SYNC_BLOCK"', '"CREATE,OVERWRITE"', DRIVERS
    ),
    wrong(
        "WebHDFS is asked for a rename that answers no and not why",
        "fs/webhdfs_client.py",
        ', renameoptions="NONE"',
        "",
        DRIVERS,
    ),
    wrong(
        "a range that came short by WebHDFS is taken for the whole",
        "fs/webhdfs_client.py",
        "if length is not None and len(data) != length:",
        "if False:",
        "tests/unit/fs/test_broken_lines.py::TestShort",
    ),
    wrong(
        "a no without a reason is a yes",
        "fs/webhdfs.py",
        "            self._explain(full_source, full_target)\n",
        "            return\n",
        DRIVERS,
    ),
    wrong(
        "what a server says that nobody knows is taken for nothing done",
        "fs/hadoop_errors.py",
        "(Unavailable if operation in READING else OutcomeUnknown, ",
        "(Unavailable, ",
        DRIVERS,
    ),
    wrong(
        "a lost reply of WebHDFS is taken for a request that was never sent",
        "fs/webhdfs_client.py",
        "if _was_never_sent(error) or ",
        "if True or ",
        DRIVERS,
    ),
    wrong(
        "a native call is given up though no other NameNode is active",
        "fs/hdfs_native_nodes.py",
        "elif any(self._found[name] in (STANDBY, SILENT) for name in self._addresses):",
        "elif False:",
        NODES,
    ),
    wrong(
        "a request is given up though no other NameNode is active",
        "fs/webhdfs_nodes.py",
        "if active is None:",
        "active = active or node\n        if False:",
        NODES,
    ),
    wrong(
        "a token of another cluster is sent",
        "fs/hadoop_tokens.py",
        "return near[0] if len({token.service for token in near}) == 1 else None",
        "return (near or tokens)[0]",
        TOKENS,
    ),
    wrong(
        "an error of WebHDFS shows the token",
        "fs/webhdfs_client.py",
        "scrub(str(error))",
        "str(error)",
        DRIVERS,
    ),
    wrong(
        "a native call whose reply was lost is taken for one that was never sent",
        "fs/hdfs_native_errors.py",
        "if self._operation in READING or _NEVER_SENT.search(text):",
        "if True:",
        DRIVERS,
    ),
    wrong(
        "a driver that waits by itself is asked again and again",
        "fs/registry.py",
        "if policy is None and fs.capabilities.patient:",
        "if False:",
        DRIVERS,
    ),
    wrong(
        "an upload by WebHDFS is cut while its file may yet be made",
        "fs/webhdfs.py",
        "            self._fs.wait_until_replaced(self._full, self._empty_file)\n",
        "",
        f"{DRIVERS}::test_an_upload_is_given_up_when_its_file_is_there",
    ),
    wrong(
        "who writes a hint and is overtaken fails",
        "fs/hadoop.py",
        '            self._look("put", path, full)\n',
        "            raise\n",
        f"{DRIVERS}::TestHints",
    ),
    wrong(
        "a hint in no directory is written",
        "fs/hadoop.py",
        '            self._look("put", path, full)\n',
        "            pass\n",
        f"{DRIVERS}::TestHints",
    ),
    wrong(
        "nobody waits for a hint of its own",
        "fs/hdfs_native.py",
        "        self._settle(path)\n",
        "",
        f"{CLOSE}::test_who_asks_for_a_hint_of_its_own_waits_until_it_is_closed",
    ),
    wrong(
        "a directory of HDFS that is not empty is gone",
        "fs/hadoop.py",
        "        except NotEmpty:\n            return False\n",
        "        except NotEmpty:\n            return True\n",
        f"{DRIVERS}::TestDirectories",
    ),
    wrong(
        "a directory of HDFS is deleted as a file",
        "fs/hadoop.py",
        'self._look("delete", path, full).is_directory or ',
        "",
        f"{DRIVERS}::TestDirectories",
    ),
    wrong(
        "a panic of the native library ends the process",
        "fs/hdfs_native_errors.py",
        'return (kind.__module__, kind.__name__) == ("pyo3_runtime", "PanicException")',
        "return False",
        f"{DRIVERS}::test_a_panic_of_the_library_is_an_error_of_the_port",
    ),
    wrong("the process ends amid a call", "fs/deadline.py", "while _running and", "while False and", DEADLINE),
    wrong(
        "the process ends amid a call that another one began",
        "fs/deadline.py",
        "while _running and SYSTEM_CLOCK.monotonic_s() < deadline_s:",
        "for _ in [1]:",
        DEADLINE,
    ),
    wrong(
        "what files on HDFS are to have is not tried at start",
        "fs/hadoop.py",
        "if asked is None or (self.where, asked) in _proven:",
        "if True:",
        DRIVERS,
    ),
    wrong(
        "a trial of what files on HDFS are to have is left there",
        "fs/hadoop.py",
        "        finally:\n            self.discard(full)\n",
        "        finally:\n            pass\n",
        DRIVERS,
    ),
    wrong(
        "a native call without a thread is taken for one whose reply was lost",
        "fs/hdfs_native_errors.py",
        "if isinstance(error, NoThreadError | NoNameNodeError):",
        "if False:",
        DRIVERS,
    ),
    wrong(
        "the native driver has a file recovered that is not closed",
        "fs/hdfs_native_close.py",
        "if client.get_content_summary(full).space_consumed == space_bytes:",
        "if True:",
        CLOSE,
    ),
    wrong(
        "the native driver takes an open file of full blocks for a closed one",
        "fs/hdfs_native_close.py",
        " or size_bytes % status.blocksize == 0",
        "",
        CLOSE,
    ),
    wrong(
        "the native driver takes a file for closed that the library could not close",
        "fs/hdfs_native_close.py",
        "    closing.result()\n",
        "    wait([closing])\n",
        CLOSE,
    ),
)

DURABLE_AS_ASKED = (
    wrong(
        "durability is not obeyed",
        "sink/staging.py",
        "self.durability = durability_of(durability, fs.capabilities)",
        'self.durability = durability_of("auto", fs.capabilities)',
        DURABILITY,
    ),
    wrong(
        "more durability is asked for than there is, and taken for given",
        "sink/durability.py",
        "if _BY_STRENGTH.index(found) > _BY_STRENGTH.index(capabilities.durability):",
        "if False:",
        DURABILITY,
    ),
    wrong(
        "a flush forgets the durability that its query asked for",
        "sink/publishing.py",
        'durability=text["durability"]',
        'durability="auto"',
        DURABILITY,
    ),
    wrong(
        "the record does not say how durable its files are",
        "sink/driver.py",
        '{**_metrics(config, messages), "durability": durability}',
        "_metrics(config, messages)",
        DURABILITY,
    ),
)

HADOOP = (*ON_HDFS, *DURABLE_AS_ASKED)
