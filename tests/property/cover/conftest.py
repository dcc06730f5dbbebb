"""The corpora, the encoder without a model and the oracle live beside the unit tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "unit" / "cover"))
