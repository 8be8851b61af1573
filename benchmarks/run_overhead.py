"""What ``scavenge run`` costs a sample, beside the floor: read a row, ask over a bare connection, write a row.

``python benchmarks/run_overhead.py [SAMPLES] [STREAMS]`` runs both as processes of their own against one canned server
and prints CPU time a sample (user and system, of the client alone), marginal and whole, the peak of memory, and the
ratio to the floor. Marginal means the difference between a run of all samples and a run of a tenth of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent

FLOOR = """
import json, sys, trio, h11
async def worker(rows, out, port):
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    conn = h11.Connection(h11.CLIENT)
    for line in rows:
        row = json.loads(line)
        body = json.dumps({"model": "sim", "messages": [{"role": "user", "content": row["question"]}]}).encode()
        headers = [("host", "x"), ("content-length", str(len(body)))]
        head = h11.Request(method="POST", target="/v1/chat/completions", headers=headers)
        await stream.send_all(conn.send(head) + conn.send(h11.Data(data=body)) + conn.send(h11.EndOfMessage()))
        reply = bytearray()
        while True:
            event = conn.next_event()
            if event is h11.NEED_DATA:
                conn.receive_data(await stream.receive_some(65536))
            elif type(event) is h11.Data:
                reply += event.data
            elif type(event) is h11.EndOfMessage:
                break
        conn.start_next_cycle()
        text = json.loads(bytes(reply))["choices"][0]["message"]["content"]
        out.write(json.dumps({"id": row["id"], "text": text}) + "\\n")
async def main(path, port, streams):
    with open(path) as rows, open(path + ".out", "w") as out:
        async with trio.open_nursery() as nursery:
            for _ in range(streams):
                nursery.start_soon(worker, rows, out, port)
trio.run(main, sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
"""


def measured(command: list[str]) -> tuple[float, float]:
    """CPU seconds and peak megabytes of a command."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{command[:4]} ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def dataset(folder: Path, samples: int) -> Path:
    path = folder / f"rows{samples}.jsonl"
    with path.open("w") as file:
        for n in range(samples):
            file.write(json.dumps({"id": str(n), "question": f"What is {n} + 1? " * 5, "answer": "42"}) + "\n")
    return path


def evaluation(folder: Path, rows: Path, port: int, streams: int, stream: bool) -> Path:
    path = folder / f"{rows.stem}.toml"
    args = f'{{ dataset = "{rows}", scorer = "includes" }}'
    path.write_text(
        f'stream = {str(stream).lower()}\n[admission]\npolicy = "fixed"\nlimit = {streams}\n[[eval]]\nenv_id = "chat"\n'
        f'model = "sim"\napi_base_url = "http://127.0.0.1:{port}/v1"\nenv_args = {args}\n'
    )
    return path


def main(samples: int, streams: int) -> None:
    server = subprocess.Popen([sys.executable, HERE / "canned_server.py", "0"], stdout=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline().split()[1])  # type: ignore[union-attr]
        with tempfile.TemporaryDirectory() as name:
            compare(Path(name), port, samples, streams)
    finally:
        server.kill()
        server.wait()


def compare(folder: Path, port: int, samples: int, streams: int) -> None:
    costs: dict[str, dict[int, tuple[float, float]]] = {"floor": {}, "scavenge run": {}}
    for count in (samples // 10, samples):
        rows = dataset(folder, count)
        costs["floor"][count] = measured([sys.executable, "-c", FLOOR, str(rows), str(port), str(streams)])
        file = evaluation(folder, rows, port, streams, stream=False)
        run = [sys.executable, "-m", "scavenge", "run", str(file), "--no-progress", "--output-dir", str(folder)]
        costs["scavenge run"][count] = measured(run)
    print(f"{samples} samples, {streams} streams; CPU ms a sample: marginal | whole process; peak MB")
    marginal = {}
    for name, cost in costs.items():
        few, many = cost[samples // 10], cost[samples]
        marginal[name] = (many[0] - few[0]) / (samples - samples // 10) * 1000
        print(f"{name:14} {marginal[name]:6.3f} | {many[0] / samples * 1000:6.3f}; {many[1]:5.0f}")
    print(f"ratio of the marginal costs: {marginal['scavenge run'] / marginal['floor']:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000, int(sys.argv[2]) if len(sys.argv) > 2 else 64)
