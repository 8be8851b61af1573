"""What it costs a sample to be played in a worker process, beside the same in the run's own process.

``python benchmarks/worker_overhead.py [SAMPLES] [WORKERS]`` runs the environment ``chat`` both ways against one canned
server, and prints CPU time a sample (user and system, of the run and its workers together), marginal and whole, and
the ratio. Marginal means the difference between a run of all samples and a run of a tenth of them, so that the start
of the workers is not in it; it is in what the whole process costs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from run_overhead import HERE, dataset, evaluation, measured

STREAMS = 32


def main(samples: int, workers: int) -> None:
    server = subprocess.Popen([sys.executable, HERE / "canned_server.py", "0"], stdout=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline().split()[1])  # type: ignore[union-attr]
        with tempfile.TemporaryDirectory() as name:
            compare(Path(name), port, samples, workers)
    finally:
        server.kill()
        server.wait()


def compare(folder: Path, port: int, samples: int, workers: int) -> None:
    few = samples // 10
    ways = {"in process": [], "in workers": ["--set", "in_worker=true", "--set", f"workers.max={workers}"]}
    print(f"{samples} samples, {workers} workers; CPU ms a sample: marginal | whole; peak MB of the largest process")
    marginal: dict[str, float] = {}
    for way, options in ways.items():
        costs = [cost(folder, port, count, options) for count in (few, samples)]
        marginal[way] = (costs[1][0] - costs[0][0]) / (samples - few) * 1000
        print(f"{way:10} {marginal[way]:6.3f} | {costs[1][0] / samples * 1000:6.3f}; {costs[1][1]:5.0f}")
    print(f"ratio of the marginal costs: {marginal['in workers'] / marginal['in process']:.2f}")


def cost(folder: Path, port: int, samples: int, options: list[str]) -> tuple[float, float]:
    file = evaluation(folder, dataset(folder, samples), port, STREAMS, stream=False)
    run = [sys.executable, "-m", "scavenge", "run", str(file), "--no-progress", "--output-dir", str(folder), *options]
    return measured(run)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3000, int(sys.argv[2]) if len(sys.argv) > 2 else 2)
