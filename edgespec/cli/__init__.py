"""The command line. A command is one file here and one line in `edgespec/cli/main.py`."""
