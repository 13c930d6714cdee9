# SPDX-License-Identifier: Apache-2.0
"""`python -m railweave` is the command `railweave`."""

from railweave.cli import main

if __name__ == "__main__":
    main()
