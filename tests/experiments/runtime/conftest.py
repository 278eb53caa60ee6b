"""What the runtime's tests share: the programs beside them can be imported."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
