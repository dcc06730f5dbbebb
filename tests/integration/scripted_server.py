"""The tests' scripted OpenAI-compatible server as a program: scripted_server.py PORT SECONDS_PER_REPLY."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "llm"))
from faulty_server import FaultyServer

ANSWER = "The answer is here."

if __name__ == "__main__":
    port, seconds = int(sys.argv[1]), float(sys.argv[2])
    FaultyServer({"": [("sleep", seconds)]}, ANSWER, port)
    while True:
        time.sleep(60)
