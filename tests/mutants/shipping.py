"""Mistakes of what driver and executors know of each other."""

from __future__ import annotations

from tests.mutants.mutant import dropped, wrong

PLACE = "tests/unit/sink/test_place.py"
SHIPPED = "tests/unit/spark/test_shipping.py"
MEMORY = "tests/unit/spark/test_datasource.py::test_what_other_processes_cannot_see_is_refused"
HADOOP = "tests/unit/fs/test_hadoop_surroundings.py"

SHIPPING = (
    dropped(
        "a task does not look whether it sees the driver's directory",
        "sink/writer.py",
        "check_place(fs, self.config.path, self.planned.place)",
        PLACE,
    ),
    wrong(
        "a task takes any marked directory for the driver's",
        "attempt/directory_marker.py",
        "    if found != place.mark:",
        "    if found is None:",
        f"{PLACE}::test_a_task_that_sees_another_directory_writes_nothing",
    ),
    wrong(
        "the driver does not mark a directory that has none",
        "attempt/directory_marker.py",
        "    if place is not None or not _may_differ(fs):",
        "    if True:",
        PLACE,
    ),
    dropped(
        "what is in the memory of one process is read in another",
        "spark/reader.py",
        'require_shared(directory.file_system, parsed["path"])',
        MEMORY,
    ),
    dropped(
        "what is in the memory of one process is written in another",
        "spark/settings.py",
        "require_shared(open_filesystem(config.path, settings=dict(config.publishing.settings)), config.path)",
        MEMORY,
    ),
    wrong(
        "executors of any version are taken",
        "spark/shipping.py",
        "if found.__version__ != version:",
        "if False:",
        f"{SHIPPED}::test_another_version_is_named",
    ),
    wrong(
        "executors of any build are taken",
        "spark/shipping.py",
        "            if names != expected:",
        "            if False:",
        f"{SHIPPED}::test_another_build_of_the_version_is_named",
    ),
    wrong(
        "executors are not told where the driver's HDFS is",
        "sink/publishing/settings.py",
        'settings_for_others(parsed["path"], parsed.prefixed("storage"))',
        'parsed.prefixed("storage")',
        HADOOP,
    ),
    wrong(
        "what is found on a host counts more than what the driver knows of HDFS",
        "fs/hdfs/environment.py",
        "_read_configuration() | dict(self.handed)",
        "dict(self.handed) | _read_configuration()",
        HADOOP,
    ),
    wrong(
        "all of Hadoop's configuration is handed over, passwords too",
        "fs/hdfs/environment.py",
        " and not _SECRETS.search(name)",
        "",
        HADOOP,
    ),
    wrong(
        "executors ask HDFS in their own name",
        "fs/hdfs/environment.py",
        "return cls(handed, user)",
        "return cls(handed)",
        HADOOP,
    ),
    wrong(
        "with Kerberos somebody is named",
        "fs/hdfs/environment.py",
        "None if is_kerberos(configuration) else current_user()",
        "current_user()",
        HADOOP,
    ),
    wrong(
        "an executor does not miss the driver's tokens",
        "fs/hdfs/environment.py",
        "if has_token and not os.environ.get(TOKEN_FILE):",
        "if False:",
        HADOOP,
    ),
)
