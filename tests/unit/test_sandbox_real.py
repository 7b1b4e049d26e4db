"""`make demo-real` before anything is downloaded."""

import os
import subprocess
import sys

import pytest

from sandbox.folder import REPOSITORY


@pytest.mark.parametrize(("given", "code"), [(None, 1), ("", 1), ("no", 1), ("yes", 0)])
def test_nothing_is_installed_before_gemmas_terms_are_accepted(given: str | None, code: int):
    environment = {
        name: value for name, value in os.environ.items() if name != "ACCEPT_GEMMA_TERMS"
    }
    environment |= {} if given is None else {"ACCEPT_GEMMA_TERMS": given}
    done = subprocess.run(
        [sys.executable, "-m", "sandbox.real", "terms"],
        env=environment,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert "ai.google.dev/gemma/terms" in done.stdout
    assert ("ACCEPT_GEMMA_TERMS=yes make demo-real" in done.stderr) == (code != 0)
    recipe = (REPOSITORY / "Makefile").read_text().split("\ndemo-real:")[1].split("\n\n")[0]
    assert recipe.index("sandbox.real terms") < recipe.index("real.txt")
