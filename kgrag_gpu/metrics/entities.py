"""Whether two entity references mean the same entity: by id where both have one, else by normalised name.

Homonyms with different ids stay apart; a reference without an id falls back on its name.
"""

from collections.abc import Iterable, Sequence

from kgrag_gpu.metrics.answer import normalise
from kgrag_gpu.types import EntityRef


class EntityLookup:
    """The entities of one question's anchors or evidence, ready to be asked for."""

    def __init__(self, entities: Iterable[EntityRef]):
        self._ids: set[str] = set()
        self._names: set[str] = set()
        self._names_without_id: set[str] = set()
        for entity in entities:
            name = normalise(entity.name)
            self._names.add(name)
            if entity.external_id:
                self._ids.add(entity.external_id)
            else:
                self._names_without_id.add(name)

    def holds(self, external_id: str, spellings: Sequence[str]) -> bool:
        """Whether the entity with this id (may be empty) or one of these spellings is among them."""
        if external_id and external_id in self._ids:
            return True
        names = self._names_without_id if external_id else self._names
        return any(name and name in names for name in map(normalise, spellings))
