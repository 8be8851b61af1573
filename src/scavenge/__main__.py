"""``python -m scavenge`` is ``scavenge``."""

from scavenge.cli.main import main

if __name__ == "__main__":
    main()
