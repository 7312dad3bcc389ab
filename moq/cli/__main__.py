"""`python -m moq.cli` is `moq`."""

import sys

from moq.cli.main import main

sys.exit(main())
