"""A SLURM of one node in a temporary folder: controller, node daemon and authentication, all started and ended here."""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NUM_CPUS = 4  # more than there may be: a server and three tasks run side by side
CONFIG = """
ClusterName=kgrag
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_min_interval=100000,sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobRequeue=1
MinJobAge=3600
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={num_cpus} RealMemory=20000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class NoSlurm(Exception):
    """SLURM cannot be had here; the message says why."""


def require_slurm() -> None:
    """Makes sure that SLURM's programs are here; installs them where KGRAG_INSTALL_SLURM=1 asks for it.

    Raises:
        NoSlurm: They are not and cannot be installed, or this is not root, who alone may start the daemons so.
    """
    if os.geteuid() != 0:
        raise NoSlurm("a SLURM of our own is started by root only")
    if all(shutil.which(name) for name in ("sbatch", "slurmctld", "slurmd", "munged")):
        return
    if os.environ.get("KGRAG_INSTALL_SLURM") != "1":
        raise NoSlurm("SLURM is not installed; KGRAG_INSTALL_SLURM=1 installs slurm-wlm and munge by apt-get")
    packages = "apt-get update -qq && apt-get install -y -qq --no-install-recommends slurm-wlm munge"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            ["bash", "-c", packages], env=environment, capture_output=True, text=True, timeout=240, check=False
        )
    except subprocess.TimeoutExpired:
        raise NoSlurm("slurm-wlm and munge did not install within 240 s") from None
    if done.returncode:
        raise NoSlurm(f"slurm-wlm and munge cannot be installed: {done.stderr.strip()[-300:]}")


class Cluster:
    """The running cluster. Commands of SLURM find it through `environment`."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in ("state", "spool", "logs"):
            (folder / name).mkdir()
        self.host = socket.gethostname()
        ports = {"controller_port": _free_port(), "node_port": _free_port()}
        config = folder / "slurm.conf"
        config.write_text(CONFIG.format(host=self.host, folder=folder, num_cpus=NUM_CPUS, **ports))
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        self.environment = {**inherited, "SLURM_CONF": str(config), "HF_HUB_OFFLINE": "1"}
        self._hurried: dict[str, float] = {}
        self._daemons: list[subprocess.Popen] = []
        files = {"socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log", "seed-file": "munge.seed"}
        options = [f"--{option}={folder / name}" for option, name in files.items()]
        self._start("munged", "--foreground", "--force", f"--key-file={key}", *options)
        self._until((folder / "munge.socket").exists, "munged")
        self._start("slurmctld", "-D", "-f", str(config))
        self._start("slurmd", "-D", "-f", str(config), "-N", self.host)
        self._until(lambda: "idle" in self._quiet("sinfo", "-h", "-o", "%T"), "the node")

    def run(self, *command: str, **more: str) -> str:
        """Standard output of a command run in the project's folder; a failure is an error with its words."""
        return _output(command, {**self.environment, **more})

    def jobs(self) -> dict[str, str]:
        """State of every job by its number, array tasks as `<array>_<task>`; finished ones are listed, too."""
        lines = self.run("squeue", "-h", "-r", "-t", "all", "-o", "%i %T").splitlines()
        return dict(line.split() for line in lines if line.strip())

    def start_requeued(self) -> None:
        """Lets jobs that queued again start in some seconds; SLURM holds them back for two minutes.

        Not at once: a start within the second of the requeue is refused (its credential was revoked in that second).
        """
        for line in self.run("squeue", "-h", "-r", "-t", "PD", "-o", "%i %r").splitlines():
            number, reason = line.split(maxsplit=1)
            if reason == "BeginTime" and time.monotonic() - self._hurried.get(number, -99) > 30:
                self._hurried[number] = time.monotonic()
                self._quiet("scontrol", "update", f"jobid={number}", "StartTime=now+5")

    def wait(self, number: str, seconds: float) -> str:
        """The final state of a job."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            states = {job: state for job, state in self.jobs().items() if job.split("_")[0] == number}
            if states and all(state in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT") for state in states.values()):
                return " ".join(sorted(set(states.values())))
            self.start_requeued()
            time.sleep(0.5)
        raise AssertionError(f"job {number} is not done after {seconds:.0f} s: {self.jobs()}\n{self.logs()}")

    def logs(self) -> str:
        """The ends of all output of the jobs, for messages."""
        files = sorted((self.folder / "logs").iterdir())
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')[-1500:]}" for file in files)

    def close(self) -> None:
        """Cancels what runs and ends the daemons."""
        self._quiet("scancel", "-f", "-s", "KILL", "--me")
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()

    def _start(self, name: str, *options: str) -> None:
        program = shutil.which(name)
        with (self.folder / f"{name}.out").open("wb") as out:
            daemon = subprocess.Popen([program or name, *options], env=self.environment, stdout=out, stderr=out)
        self._daemons.append(daemon)

    def _until(self, is_ready, what: str) -> None:
        deadline = time.monotonic() + 30
        while not is_ready():
            if time.monotonic() > deadline or any(daemon.poll() is not None for daemon in self._daemons):
                words = "\n".join(file.read_text(errors="replace")[-800:] for file in self.folder.glob("*.out"))
                self.close()
                raise NoSlurm(f"{what} did not start on this machine: {words}")
            time.sleep(0.2)

    def _quiet(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else ""


def _output(command: tuple[str, ...], environment: Mapping[str, str]) -> str:
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-3000:]}"
    return done.stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
