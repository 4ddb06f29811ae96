"""`python -m holdfast_lab.bench`."""

from holdfast_lab.bench.run import main

if __name__ == "__main__":
    main()
