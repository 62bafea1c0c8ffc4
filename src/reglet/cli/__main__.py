import sys

from reglet.cli import main

sys.exit(main())
