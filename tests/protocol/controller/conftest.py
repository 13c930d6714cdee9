# SPDX-License-Identifier: Apache-2.0
"""The modules beside this file, which the tests of the controller share, are imported by their names."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
