"""A subscriber to be frozen: `python -m tests.crash.sleeper URL CA`; prints what it receives, a line each.

Its session is persistent and its keep-alive short, so that the broker soon notices that nobody is there.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

import moq

TOPIC: Final = "lamp"
KEEP_ALIVE_S: Final = 1


async def main(url: str, ca: Path) -> None:
    """Print messages until killed."""
    client = moq.connect(
        url, f"sleeper on {url}", persistent=True, keep_alive_s=KEEP_ALIVE_S, ca=ca if url.startswith("quic") else None
    )
    async with client, client.subscribe(TOPIC, qos=2) as lamp:
        print("subscribed", flush=True)
        async for message in lamp:
            print(message.payload.decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
