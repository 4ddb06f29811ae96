"""`python -m holdfast_lab`: the commands of people who develop Holdfast."""

from holdfast_lab.cli.main import main

if __name__ == "__main__":
    main()
