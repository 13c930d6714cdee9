# SPDX-License-Identifier: Apache-2.0
"""`python -m railweave.switch`: the command without the rest of the front door."""

from railweave.switch.cli import app

if __name__ == "__main__":
    app()
