"""Fixtures of the runtime's tests; makes the programs in this folder importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
