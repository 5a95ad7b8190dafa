"""Pods as processes of this machine, each with the arguments, the environment and the mounts of its specification."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from tests.archives import spark_class_path
from tests.cluster.cluster import SPARK_HOME, wait_for
from tests.cluster.kubernetes import container_of, name_of, source_of
from tests.demos.files.process import session_members
from tests.guarded import java

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from tests.cluster.kubernetes import ApiServer, Json

__all__ = ("Node", "Pod", "claim_directory")

ADDRESS = "127.0.0.1"
BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
# Replaces itself by a command, whose process group is killed when our end of its standard input closes.
ENDS_WITH_US = ["sh", "-c", 'exec 3<&0; (cat <&3; kill -KILL 0) & exec "$@" </dev/null 3<&-', "sh"]
JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")


class Pod:
    """The process of one pod, with all processes that it starts.

    Attributes:
        log: the output of the container.

    Args:
        specification: of the pod, with its address.
        home: of the files at its mounts, and of the log.
        image: the environment that an image would set.
    """

    def __init__(self, api: ApiServer, specification: Json, home: Path, image: Mapping[str, str]) -> None:
        self.log = home / "log"
        self._api = api
        self._home = home
        self._directories: dict[str, str] = {}
        self._mount(specification)
        variables = {name: self._inside(value) for name, value in api.variables_of(specification).items()}
        arguments = [self._inside(argument) for argument in container_of(specification)["args"]]
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [*ENDS_WITH_US, *_command(arguments, {**image, **variables}, api)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=home,
                env={**image, **variables},
                start_new_session=True,
            )

    @property
    def number(self) -> int:
        """The id of the first process."""
        return self._process.pid

    def wait(self) -> int:
        """Wait until the first process ends, kill all others, as a container does, and return the exit code."""
        code = self._process.wait()
        self.kill()
        return code

    def kill(self) -> None:
        """SIGKILL all processes and wait until they have ended; repeatable."""
        while members := session_members(self._process.pid):
            for member in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
            time.sleep(0.01)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _mount(self, specification: Json) -> None:
        """Create a directory for each mount, with the files of its config map or secret."""
        volumes = {volume["name"]: volume for volume in specification["spec"]["volumes"]}
        for number, mount in enumerate(container_of(specification)["volumeMounts"]):
            directory = self._home / str(number)
            source = source_of(volumes[mount["name"]])
            if source is not None and source[0] == "persistentvolumeclaims":
                directory = claim_directory(self._home.parent, source[1])
            directory.mkdir(parents=True, exist_ok=True)
            self._directories[mount["mountPath"]] = str(directory)
            if source is not None and directory.parent == self._home:
                for key, content in self._api.data(*source).items():
                    (directory / key).write_bytes(content)

    def _inside(self, text: str) -> str:
        """Return a text in which the directories of the mounts replace their paths in the container."""
        for path, directory in self._directories.items():
            text = text.replace(path, directory)
        return text


class Node:
    """Starts and kills the processes of the pods of a server; a `with` block ends them.

    Args:
        home: of the pods' files.
        image: the environment that an image would set.
    """

    def __init__(self, api: ApiServer, home: Path, image: Mapping[str, str]) -> None:
        self._api, self._home, self._image = api, home, image
        self._pods: dict[str, Pod] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        self._runners: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_closed = True
            pods = [*self._pods.values()]
        for pod in pods:
            pod.kill()
        for runner in self._runners:
            runner.join()

    def pod_of(self, process: int) -> str:
        """Return the name of the pod that a process belongs to."""
        session = os.getsid(process)
        with self._lock:
            (name,) = [name for name, pod in self._pods.items() if pod.number == session]
        return name

    def kill(self, name: str) -> None:
        """SIGKILL all processes of a pod, as if its container had no memory, and wait until the pod has failed."""
        self._pods[name].kill()

        def has_failed() -> bool:
            pod = self._api.get("pods", name)
            # Spark deletes the failed pods of executors.
            return pod is None or pod["status"]["phase"] == "Failed"

        wait_for(has_failed, f"the failure of the pod {name}")

    def delete(self, name: str) -> None:
        """Delete a pod without a grace period: it fails, and then it does not exist."""
        self.kill(name)
        self._api.delete("pods", name)

    def lose(self, *names: str) -> None:
        """Delete running pods by force, as an administrator does if their host is dead."""
        for name in names:
            self._api.delete("pods", name)
        for name in names:
            self._pods[name].kill()

    def logs(self) -> str:
        """Return the last lines of each pod."""
        with self._lock:
            pods = dict(self._pods)
        return "\n".join(f"{name}:\n{pod.log.read_text()[-3000:]}" for name, pod in pods.items())

    def _follow(self) -> None:
        for change, pod in self._api.events("pods"):
            name = name_of(pod)
            if change == "ADDED":
                runner = threading.Thread(target=self._run, args=(name, pod), daemon=True)
                self._runners.append(runner)
                runner.start()
            elif change == "DELETED":
                with self._lock:
                    deleted = self._pods.get(name)
                if deleted is not None:
                    deleted.kill()

    def _run(self, name: str, specification: Json) -> None:
        """Start a pod after the objects in its volumes exist, and set its status when its process has ended."""
        sources = [source for source in map(source_of, specification["spec"]["volumes"]) if source is not None]
        while not self._is_closed and not all(self._api.get(*source) for source in sources):
            time.sleep(0.02)
        status = {"phase": "Running", "podIP": ADDRESS}
        with self._lock:
            # A pod that is deleted before its start never runs.
            if self._is_closed or self._api.get("pods", name) is None:
                return
            pod = Pod(self._api, {**specification, "status": status}, self._home / name, self._image)
            self._pods[name] = pod
        self._api.set_status(name, status)
        code = pod.wait()
        # A shell has this exit code for a process that a signal has ended.
        code = code if code >= 0 else 128 - code
        terminated = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
        containers = [{"name": "spark", "state": terminated, "ready": False, "restartCount": 0}]
        phase = "Failed" if code else "Succeeded"
        self._api.set_status(name, {"phase": phase, "podIP": ADDRESS, "containerStatuses": containers})


def claim_directory(home: Path, name: str) -> Path:
    """Return the directory of a claim, which all pods share."""
    return home / "claims" / name


def _command(arguments: list[str], variables: dict[str, str], api: ApiServer) -> list[str]:
    """Return the command that the entry point of Spark's image runs."""
    role, *remaining = arguments
    if role == "driver":
        # A pod has an address that its service resolves, and the name `kubernetes.default.svc` for the server.
        here = [f"spark.driver.host={ADDRESS}", "spark.driver.port=0", "spark.driver.blockManager.port=0"]
        here += [f"spark.driver.bindAddress={variables['SPARK_DRIVER_BIND_ADDRESS']}"]
        here += [f"spark.kubernetes.driver.master={api.url}", "spark.ui.enabled=false"]
        settings = [word for setting in here for word in ("--conf", setting)]
        return [f"{SPARK_HOME}/bin/spark-submit", *settings, "--deploy-mode", "client", *remaining]
    assert role == "executor"
    numbers = sorted(int(match[1]) for match in map(JAVA_OPTION.fullmatch, variables) if match)
    memory = variables["SPARK_EXECUTOR_MEMORY"]
    class_path = f"{spark_class_path()}:{variables['SPARK_DIST_CLASSPATH']}"
    options = [variables[f"SPARK_JAVA_OPT_{number}"] for number in numbers]
    command = [java(), *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", class_path, BACKEND]
    command += ["--driver-url", variables["SPARK_DRIVER_URL"], "--executor-id", variables["SPARK_EXECUTOR_ID"]]
    command += ["--cores", variables["SPARK_EXECUTOR_CORES"], "--app-id", variables["SPARK_APPLICATION_ID"]]
    command += ["--hostname", variables["SPARK_EXECUTOR_POD_IP"], "--podName", variables["SPARK_EXECUTOR_POD_NAME"]]
    return [*command, "--resourceProfileId", variables["SPARK_RESOURCE_PROFILE_ID"]]
