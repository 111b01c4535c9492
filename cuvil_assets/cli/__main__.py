import sys

from cuvil_assets.cli import main

sys.exit(main())
