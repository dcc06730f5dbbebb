"""Records from the Hugging Face hub, its cache, or a local data set folder, through `datasets`.

Under HF_HUB_OFFLINE=1 nothing is connected to: only the cache and local folders are read.
"""

from kgrag_gpu.config.schema import HubConfig
from kgrag_gpu.data.records import RecordFile


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
        table = datasets.load_dataset(hub.path, name=hub.name, split=hub.split, revision=hub.revision)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        # A closed network shows as any of these, depending on which request fails first.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise HubUnavailable(f"{hub.path} ({reason})") from error
    return RecordFile([(f"{hub.path}[{i}]", dict(row)) for i, row in enumerate(table)])
