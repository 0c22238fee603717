"""`python -m optimize.cli`: the same as the console command."""

from optimize.cli import main

main()
