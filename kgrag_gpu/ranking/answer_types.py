"""What stands at the end of a step, and how well that fits what a question asks for.

Three signs, each found from the graph: which relations the ends have themselves (their profile: "movies" is near to
"directed by, genre, release year"), what their names look like on average, and whether the names are those of people,
places or dates (who, where, when). Knows no list of types.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from kgrag_gpu.tensors.fixed_point import SCALE, exact_dot, to_fixed

KINDS = ("person", "place", "date")
KIND_OF_QUESTION = {"who": 0, "whom": 0, "whose": 0, "where": 1, "when": 2}
# Names as they come in any graph; a name is of the kind whose examples it is nearest to.
_EXAMPLES = {
    "person": ("John Smith", "Maria Garcia", "Robert Lee", "Anna Kowalska", "King Henry"),
    "place": ("Paris", "New York City", "Germany", "Tokyo, Japan", "the Alps"),
    "date": ("1987", "2004", "12 May 2003", "1950s"),
    "thing": ("English", "Comedy", "the red car", "science", "happiness", "Mozilla Firefox", "engineer"),
}
_TEMPERATURE = 0.05
_MAX_DATE_CHARS = 12
_DATE = re.compile(r"[\d\W_]+|.*\b\d{4}\b.*")
_RAREST_FOLLOWER = 1e-3  # shares below count as this


@dataclass(frozen=True, eq=False)
class EndTypes:
    """The ends of every step, as vectors and shares.

    Attributes:
        profiles: int16 [steps, dim], the other relations of the ends, weighted by how many have them.
        name_means: int16 [steps, dim], the ends' names on average, less the average over all steps.
        kinds: share of person, place and date among the ends.
        follower_offsets, follower_steps: the steps that some end of each step has, by step.
    """

    profiles: Tensor
    name_means: Tensor
    kinds: Float64[Tensor, "steps 3"]
    follower_offsets: Int64[Tensor, " steps_plus_1"]
    follower_steps: Int64[Tensor, " followers"]
    _follower_keys: Tensor
    _follower_logs: Tensor

    @property
    def num_steps(self) -> int:
        """Rows of the tables."""
        return self.kinds.shape[0]

    @classmethod
    def build(
        cls,
        step_vectors: np.ndarray,
        sharing: sp.csr_array,
        inverse: np.ndarray,
        end_names: Sequence[str],
        end_offsets: np.ndarray,
        encode: Callable[[Sequence[str]], np.ndarray],
        device: torch.device,
    ) -> "EndTypes":
        """
        Args:
            step_vectors: int16 [steps, dim], one text of each step.
            sharing: entities that have both of two steps (StepGraph.sharing).
            inverse: the step that leads back.
            end_names: names of sampled ends, by step as `end_offsets` says.
            encode: texts to int16 vectors.
        """
        ends = sharing.tocsr()[inverse]  # row c: the entities at the end of c, by what they have
        totals = np.maximum(sharing.diagonal()[inverse], 1)
        followers = sp.diags_array(1.0 / totals).dot(ends).tocoo()
        profiles = _unit(np.asarray(ends @ (step_vectors.astype(np.float64) * SCALE)))
        means, kinds = _name_signs(end_names, end_offsets, encode)
        means = _unit(means - means.mean(axis=0, keepdims=True)) if len(means) else means
        keys = followers.row.astype(np.int64) * len(inverse) + followers.col
        order = np.argsort(keys)
        offsets = np.searchsorted(followers.row[order], np.arange(len(inverse) + 1))
        logs = np.log10(np.maximum(followers.data, _RAREST_FOLLOWER))
        return cls(
            profiles=torch.from_numpy(to_fixed(profiles)).to(device),
            name_means=torch.from_numpy(to_fixed(means)).to(device),
            kinds=torch.from_numpy(kinds).to(device),
            follower_offsets=torch.from_numpy(offsets).to(device),
            follower_steps=torch.from_numpy(followers.col[order].astype(np.int64)).to(device),
            _follower_keys=torch.from_numpy(keys[order]).to(device),
            _follower_logs=torch.from_numpy(logs[order]).to(device),
        )

    def follower_logs(self, steps: Int64[Tensor, " pairs"], following: Int64[Tensor, " pairs"]) -> Tensor:
        """log10 of the share of a step's ends that go on by another; at least that of 1 in 1,000."""
        keys = steps * self.num_steps + following
        places = torch.searchsorted(self._follower_keys, keys).clamp(max=max(0, len(self._follower_keys) - 1))
        floor = float(np.log10(_RAREST_FOLLOWER))
        if not len(self._follower_keys):
            return torch.full(keys.shape, floor, dtype=torch.float64, device=keys.device)
        return torch.where(self._follower_keys[places] == keys, self._follower_logs[places], floor)

    def profile_cosines(self, vectors: Tensor) -> Float64[Tensor, "nouns steps"]:
        """Cosine of each noun to the profile of each step's ends."""
        return exact_dot(vectors, self.profiles)

    def name_cosines(self, vectors: Tensor) -> Float64[Tensor, "nouns steps"]:
        """Cosine of each noun to the names of each step's ends, where above or below other steps'."""
        return exact_dot(vectors, self.name_means)


def _name_signs(
    names: Sequence[str], offsets: np.ndarray, encode: Callable[[Sequence[str]], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean name vector [steps, dim] (unit) and shares of the kinds [steps, 3] over each step's sampled ends."""
    examples = [encode(texts).astype(np.float64).mean(axis=0) for texts in _EXAMPLES.values()]
    centres = _unit(np.stack(examples))
    distinct = list(dict.fromkeys(names))
    row_of = {name: row for row, name in enumerate(distinct)}
    vectors = encode(distinct).astype(np.float64) * SCALE if distinct else np.zeros((0, centres.shape[1]))
    logits = vectors @ centres.T / _TEMPERATURE
    shares = np.exp(logits - logits.max(axis=1, keepdims=True)) if len(logits) else np.zeros((0, len(_EXAMPLES)))
    shares /= shares.sum(axis=1, keepdims=True) if len(shares) else 1.0
    dates = np.array([len(name) <= _MAX_DATE_CHARS and bool(_DATE.fullmatch(name)) for name in distinct], dtype=bool)
    shares[dates] = [0, 0, 1, 0]
    num_steps = len(offsets) - 1
    means, kinds = np.zeros((num_steps, centres.shape[1])), np.zeros((num_steps, len(KINDS)))
    for step in range(num_steps):
        rows = [row_of[name] for name in names[offsets[step] : offsets[step + 1]]]
        if rows:
            means[step] = vectors[rows].mean(axis=0)
            kinds[step] = shares[rows].mean(axis=0)[: len(KINDS)]
    return _unit(means), kinds


def _unit(rows: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
