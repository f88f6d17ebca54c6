from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from wattslice.train.protocol import LineReader, send


@given(st.lists(st.text(max_size=50), max_size=10), st.integers(1, 7))
def test_messages_arrive_whole_and_in_order(texts: list[str], cut: int) -> None:
    reading, writing = os.pipe()
    reader = LineReader(reading)
    whole_reading, whole_writing = os.pipe()
    for text in texts:
        send(whole_writing, "m", text=text)
    os.close(whole_writing)
    with os.fdopen(whole_reading, "rb") as handle:
        data = handle.read()
    lines: list[str] = []
    for start in range(0, len(data), cut):
        os.write(writing, data[start : start + cut])
        lines += reader.lines()
    assert not reader.closed
    os.close(writing)
    lines += reader.lines()
    assert reader.closed
    assert len(lines) == len(texts)
    os.close(reading)


def test_a_long_message_crosses_a_full_pipe() -> None:
    reading, writing = os.pipe()
    reader = LineReader(reading)
    size = 1 << 20
    if os.fork() == 0:
        send(writing, "done", text="x" * size)
        os._exit(0)
    os.close(writing)
    lines: list[str] = []
    while not reader.closed:
        lines += reader.lines()
    os.wait()
    assert len(lines) == 1
    assert len(lines[0]) > size
