"""``python -m confide`` and the ``confide`` command."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from confide.cli.app import run

    run()


if __name__ == "__main__":
    main()
