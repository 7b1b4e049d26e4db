"""Tools, releases and a Go that exist for the tests alone."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

from tools.recipe import Build, Main, Tool


def make(name: str = "gadget", **ways: object) -> Tool:
    build_way = Build(mains={"gadgets": (Main(f"example.org/{name}", name),)})
    return Tool(name=name, version="1.2.3", programs=(name,), build=build_way, **ways)  # type: ignore[arg-type]


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def publish(folder: Path, name: str = "gadget") -> None:
    """A release: an archive with the program in a folder, something else, and the checksums."""
    with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as tar:
        for member, text in ((f"{name}-1.2.3/{name}", "#!/bin/sh\necho 1.2.3\n"), ("README", "x")):
            info = tarfile.TarInfo(member)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    digest = hashlib.sha256((folder / f"{name}.tar.gz").read_bytes()).hexdigest()
    (folder / "sums").write_text(f"{'0' * 64}  other.tar.gz\n{digest}  {name}.tar.gz\n")


def fake_go(path: Path, built: str) -> Path:
    """A `go` that lists one package, writes programs, and downloads a module with one file."""
    source = path.parent / "source" / "crds"
    source.mkdir(parents=True)
    (source / "ray.yaml").write_text("kind: CustomResourceDefinition\n")
    folder = json.dumps({"Dir": str(source.parent)})
    return script(
        path,
        f"""case "$1" in
        env) echo go99.1.0;;
        list) printf 'example.org/gadget\\t/nowhere\\tx.go\\tfmt\\n';;
        mod) echo '{folder}';;
        build) echo example.org/gadget >&2; {built};;
        esac""",
    )


WRITE = 'while [ "$1" != -o ]; do shift; done; printf "#!/bin/sh\\necho hi\\n" > "$2gadget"; '
WRITE += 'chmod +x "$2gadget"'
