"""Records from the Hugging Face hub, its cache, or a local data set folder, through `datasets`.

Under HF_HUB_OFFLINE=1 nothing is connected to: only the cache and local folders are read. The same goes for a machine
that cannot reach the hub at all, which is found out once and quickly rather than by the client's rows of retries.
"""

import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from kgrag_gpu.config.schema import HubConfig
from kgrag_gpu.data.records import RecordFile

CONNECT_TIMEOUT_S = 5.0


class HubUnavailable(Exception):
    """The hub's copy cannot be had; the message says why in a few words."""


def hub_records(hub: HubConfig) -> RecordFile:
    """All records of one split.

    Raises:
        HubUnavailable: no connection and nothing cached, no such data set or split, or files that do not load.
    """
    import datasets
    from datasets.exceptions import DatasetsError

    try:
        with _cache_only(not Path(hub.path).exists() and not _hub_reachable()):
            table = datasets.load_dataset(hub.path, name=hub.name, split=hub.split, revision=hub.revision)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        # A closed network shows as any of these, depending on which request fails first.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise HubUnavailable(f"{hub.path} ({reason})") from error
    return RecordFile([(f"{hub.path}[{i}]", dict(row)) for i, row in enumerate(table)])


def _hub_reachable() -> bool:
    """Whether the hub answers on its port; never asked under HF_HUB_OFFLINE, and left to the client behind a proxy."""
    from huggingface_hub import constants

    endpoint = urlsplit(constants.ENDPOINT)
    if constants.HF_HUB_OFFLINE:
        return False
    if endpoint.scheme in urllib.request.getproxies():
        return True
    port = endpoint.port or (80 if endpoint.scheme == "http" else 443)
    try:
        socket.create_connection((endpoint.hostname or "", port), timeout=CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True


@contextmanager
def _cache_only(active: bool) -> Iterator[None]:
    """While active, `datasets` and the hub's client read their cache and connect to nothing."""
    import datasets.config
    from huggingface_hub import constants

    before = (datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE)
    if active:
        datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before
