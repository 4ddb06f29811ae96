#!/usr/bin/env bash
# Every Python of a version that Holdfast supports, one of each: on the path, or where pyenv keeps them.
for name in python3.11 python3.12 python3.13 python3.14; do
    for found in "$(command -v "$name")" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/"$name"; do
        # A shim of pyenv stands on the path for versions that it would not start.
        if [ -n "$found" ] && "$found" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "$found"
            break
        fi
    done
done
