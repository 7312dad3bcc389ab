"""Write what follows from declarations: the codecs in `moq/wire`, the tables of packets and metrics in the documents.

    python scripts/generate.py            write the files
    python scripts/generate.py --check    exit 1 if a file is not what would be written

All are committed: the code can be read, stepped through and counted by coverage, the tables read where they are.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

# The declarations are imported without their packages, whose `__init__` would import what is to be written.
for _name in ("moq", "moq.wire", "moq.wire.mqtt", "moq.server", "moq.server.metrics"):
    _package = ModuleType(_name)
    _package.__path__ = [str(ROOT / _name.replace(".", "/"))]
    sys.modules[_name] = _package

from moq.wire import header, mmqp  # noqa: E402
from moq.wire.mqtt import header as mqtt_header  # noqa: E402
from moq.wire.mqtt import packets as mqtt  # noqa: E402
from scripts.metric_tables import with_metric_tables  # noqa: E402
from scripts.wire_codec import codec_source  # noqa: E402
from scripts.wire_layout import Dialect  # noqa: E402
from scripts.wire_tables import with_property_table, with_tables  # noqa: E402


def outputs() -> dict[Path, str]:
    """Every generated file with its text."""
    dialect = Dialect(mmqp, mmqp.PACKETS, header)
    document = ROOT / "docs/protocol.md"
    mqtt_document = ROOT / "docs/reference/mqtt-wire.md"
    metrics_document = ROOT / "docs/reference/metrics.md"
    return {
        ROOT / "moq/wire/_mmqp.py": ruff_formatted(codec_source(dialect)),
        **{
            ROOT / f"moq/wire/mqtt/_mqtt{version}.py": ruff_formatted(
                codec_source(Dialect(mqtt, mqtt.PACKETS, mqtt_header, version))
            )
            for version in (mqtt_header.VERSION_3_1_1, mqtt_header.VERSION_5)
        },
        document: with_tables(document.read_text(), dialect),
        mqtt_document: with_property_table(mqtt_document.read_text()),
        metrics_document: with_metric_tables(metrics_document.read_text()),
    }


def ruff_formatted(source: str) -> str:
    """The source as `ruff` would have it."""
    ruff = [sys.executable, "-m", "ruff"]
    options = ["--line-length", "120", "--stdin-filename", "moq/wire/generated.py", "-"]
    sort = [*ruff, "check", "--quiet", "--isolated", "--select", "I", "--fix", *options]
    sorted_ = subprocess.run(sort, input=source, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    form = [*ruff, "format", "--quiet", "--isolated", *options]
    return subprocess.run(form, input=sorted_, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def main() -> int:
    """Write the files, or say which are stale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    check = parser.parse_args().check
    stale = {path: text for path, text in outputs().items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        print(f"{'stale' if check else 'wrote'} {path.relative_to(ROOT)}")
        if not check:
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
