"""
====================================
What one-hot and binary scratch cost
====================================

Times one forward and one backward of the circuit of Lloyd's algorithm with
one-hot and with binary scratch, and one iteration of the streaming kernel on the
same work, side by side, on the sizes of "Leaner transformers can easily learn to
cluster" (d = 32, n = 1,024, float32); and the peak memory of one forward and
backward, each in a process of its own. The kernel has no gradient.

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
from sklearn_kmtrf.kernels._assignment import Assignment
from sklearn_kmtrf.kernels._samples import samples_of

N_FEATURES, N_SAMPLES = 32, 1024
SIZES = (6, 25, 100, 400, 1000)
CONTENDERS = ("one-hot", "binary", "kernel")
COLUMNS = (("one-hot", 8), ("binary", 12), ("kernel", 12))


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


def kernel_contender(n_clusters):
    """A function without arguments that runs one iteration of the kernel."""
    samples, centers = make_data(n_clusters)
    stream = samples_of(samples.numpy(), torch.device("cpu"))
    centers = torch.from_numpy(stream.frame.enter(centers.numpy()))

    def forward():
        assignment = Assignment(stream, None)
        assignment.move_to(centers)
        return assignment.means(assignment.sums)

    return forward


def contender(name, n_clusters, gamma):
    """What is timed, by its name."""
    if name == "kernel":
        return kernel_contender(n_clusters)
    return circuit_contender(name, n_clusters, gamma)


def time_side_by_side(n_clusters, gamma, n_rounds):
    """Median milliseconds (forward, backward) of each contender."""
    runs = {name: contender(name, n_clusters, gamma) for name in CONTENDERS}
    times = {name: ([], []) for name in runs}
    for round_number in range(n_rounds + 1):
        for name, forward in runs.items():
            start = time.perf_counter()
            result = forward()
            middle = time.perf_counter()
            if result.requires_grad:
                result.backward()
            if round_number > 0:  # the first use of memory is not timed
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


def report_peak(name, n_clusters, gamma):
    """Print the megabytes that one forward and backward add to the peak."""
    # A small problem first, so that libraries are loaded and threads exist.
    for forward in (contender(name, 2, gamma), contender(name, n_clusters, gamma)):
        before = peak_memory()
        result = forward()
        if result.requires_grad:
            result.backward()
    print(peak_memory() - before)


def measure_peak(name, n_clusters, arguments):
    """Megabytes, measured in a new process."""
    command = [sys.executable, __file__, "--peak", name, "--sizes", str(n_clusters)]
    command += ["--gamma", str(arguments.gamma), "--threads", str(arguments.threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def print_table(arguments):
    """Measure and print one row for each number of clusters."""
    print(
        f"d = {N_FEATURES}, n = {N_SAMPLES}, float32, gamma = {arguments.gamma:g}, "
        f"{arguments.threads} thread(s), {arguments.rounds} rounds, "
        f"torch {torch.__version__}; in brackets how many times less than one-hot"
    )
    print(
        f"{'k':>5} {'width':>9} | {'forward ms':34} | {'backward ms':21} | peak MB\n"
        + " " * 16
        + " | ".join(
            " ".join(f"{name:>{w}}" for name, w in columns)
            for columns in (COLUMNS, COLUMNS[:2], COLUMNS)
        )
    )
    for k in arguments.sizes:
        times = time_side_by_side(k, arguments.gamma, arguments.rounds)
        forward = [times[name][0] for name in CONTENDERS]
        backward = [times[name][1] for name in CONTENDERS[:2]]
        peaks = [measure_peak(name, k, arguments) for name in CONTENDERS]
        width = f"{k} / {(k - 1).bit_length()}"
        cells = " | ".join(map(with_ratios, (forward, backward, peaks)))
        print(f"{k:>5} {width:>9} {cells}", flush=True)


def with_ratios(numbers):
    """The first number, and the others with how many times they go into it."""
    first, *others = numbers
    cells = [f"{first:>8.2f}"]
    cells += [f"{n:>6.2f} ({first / max(n, 0.1):.1f})".rjust(12) for n in others]
    return " ".join(cells)


def main():
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[2])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--gamma", type=float, default=100.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peak", choices=CONTENDERS, help="only memory, of one size")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.peak:
        report_peak(arguments.peak, arguments.sizes[0], arguments.gamma)
    else:
        print_table(arguments)


if __name__ == "__main__":
    main()
