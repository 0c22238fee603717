"""One file a question: `python -m experiments list`, `run NAME`, `run all`. Results go into results/NAME."""
