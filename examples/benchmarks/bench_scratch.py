"""
=========================================
What one-hot and binary scratch cost
=========================================

Times one forward and one backward of the circuit of Lloyd's algorithm with
one-hot and with binary scratch, side by side, on the sizes of "Leaner
transformers can easily learn to cluster" (d = 32, n = 1,024, float32), and the
peak memory of one forward and backward, each in a process of its own.

The gradient is that of the sum of the squared new centers, with respect to all
weights of the circuit. Times are medians over rounds that alternate between the
contenders. Memory is what the process adds to its peak between the end of its
set-up (data and circuit exist) and the end of one forward and backward.

Run ``python examples/benchmarks/bench_scratch.py --help`` for the options.
"""

import argparse
import statistics
import subprocess
import sys
import time

import torch

from sklearn_kmtrf.circuits import lloyd_circuit

N_FEATURES, N_SAMPLES = 32, 1024
SIZES = (6, 25, 100, 400, 1000)
SCRATCHES = ("one-hot", "binary")


def make_data(n_clusters):
    """Samples in the unit cube, and the first of them as centers."""
    generator = torch.Generator().manual_seed(n_clusters)
    samples = torch.rand(
        (N_SAMPLES, N_FEATURES), generator=generator, dtype=torch.float32
    )
    return samples, samples[:n_clusters].clone()


def circuit_contender(scratch, n_clusters, gamma):
    """A function without arguments that runs one forward; its loss has a gradient."""
    samples, centers = make_data(n_clusters)
    circuit = lloyd_circuit(
        N_FEATURES, n_clusters, scratch=scratch, gamma=gamma, dtype=torch.float32
    ).requires_grad_(True)

    def forward():
        return circuit(samples, centers).centers.square().sum()

    return forward


def contenders(n_clusters, gamma):
    """What is timed side by side, by column name."""
    return {
        scratch: circuit_contender(scratch, n_clusters, gamma) for scratch in SCRATCHES
    }


def time_side_by_side(runs, n_rounds):
    """Median milliseconds (forward, backward) of each contender."""
    times = {name: ([], []) for name in runs}
    for name in runs:
        runs[name]().backward()  # not timed: first use of memory
    for _ in range(n_rounds):
        for name, forward in runs.items():
            start = time.perf_counter()
            loss = forward()
            middle = time.perf_counter()
            loss.backward()
            times[name][0].append(1e3 * (middle - start))
            times[name][1].append(1e3 * (time.perf_counter() - middle))
    return {
        name: tuple(statistics.median(values) for values in pair)
        for name, pair in times.items()
    }


def peak_memory():
    """Peak resident megabytes of this process so far (Linux)."""
    # Not resource.getrusage: its peak is inherited from the parent process.
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def report_peak(scratch, n_clusters, gamma):
    """Print the megabytes that one forward and backward add to the peak."""
    # The smallest circuit first, so that libraries are loaded and threads exist.
    circuit_contender("binary", 2, gamma)().backward()
    forward = circuit_contender(scratch, n_clusters, gamma)
    before = peak_memory()
    forward().backward()
    print(peak_memory() - before)


def measure_peak(scratch, n_clusters, arguments):
    """Megabytes, measured in a new process."""
    command = [sys.executable, __file__, "--peak", scratch, "--sizes", str(n_clusters)]
    command += ["--gamma", str(arguments.gamma), "--threads", str(arguments.threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def print_table(arguments):
    """Measure and print one row for each number of clusters."""
    print(
        f"d = {N_FEATURES}, n = {N_SAMPLES}, float32, gamma = {arguments.gamma:g}, "
        f"{arguments.threads} thread(s), {arguments.rounds} rounds, "
        f"torch {torch.__version__}; one-hot / binary"
    )
    print(
        f"{'k':>5} {'width':>11} {'forward ms':>18} {'ratio':>6} "
        f"{'backward ms':>18} {'ratio':>6} {'peak MB':>16} {'ratio':>6}"
    )
    for k in arguments.sizes:
        times = time_side_by_side(contenders(k, arguments.gamma), arguments.rounds)
        peaks = [measure_peak(scratch, k, arguments) for scratch in SCRATCHES]
        width = f"{k} / {(k - 1).bit_length()}"
        cells = [f"{k:>5} {width:>11}"]
        for column in (0, 1):
            one_hot, binary = (times[scratch][column] for scratch in SCRATCHES)
            cells.append(f"{one_hot:>9.2f} / {binary:>6.2f} {one_hot / binary:>6.1f}")
        one_hot, binary = peaks
        ratio = one_hot / max(binary, 0.1)
        cells.append(f"{one_hot:>8.1f} / {binary:>5.1f} {ratio:>6.1f}")
        print(" ".join(cells), flush=True)


def main():
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[2])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--gamma", type=float, default=100.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peak", choices=SCRATCHES, help="only memory, of one size")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.peak:
        report_peak(arguments.peak, arguments.sizes[0], arguments.gamma)
    else:
        print_table(arguments)


if __name__ == "__main__":
    main()
