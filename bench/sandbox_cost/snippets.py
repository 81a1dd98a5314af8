"""Programs that policies write: right ones, and hostile ones of ten kinds."""

from typing import Final

EXPECTED: Final = 499_500
RIGHT: Final = "def answer():\n    return sum(range(1000))\n"
SLOW_EXPECTED: Final = 1
SLOW_RIGHT: Final = "import time\ndef answer():\n    while time.process_time() < 0.05: pass\n    return 1\n"

HOSTILE: Final = (
    "import os\nwhile True: os.fork()",
    "x = bytearray(8 << 30)",
    "while True: pass",
    "import time\ntime.sleep(600)",
    "import socket\nsocket.create_connection(('127.0.0.1', 9))",
    "import os\nopen(f'/proc/{os.getppid()}/environ').read()",
    "import os\nos.kill(os.getppid(), 9)",
    "while True: print('x' * 1000)",
    "import os\nos._exit(0)",
    "class Same(int):\n    __eq__ = lambda *_: True\ndef answer(): return Same(1)",
)
