"""Prints the environment of a local rank as ``KEY=VALUE`` lines: ``python -m torch.tpu.distributed.environment``."""

import argparse
import os


def launch_environment(nproc_per_node: int, local_rank: int, port: int = 8471) -> dict[str, str]:
    """What libtpu reads in a host with ``nproc_per_node`` processes of one chip each.

    Raises ValueError for a count below 1 or a rank outside of it.
    """
    if nproc_per_node < 1:
        raise ValueError(f"launch_environment: expected at least one process per node, got <{nproc_per_node}>")
    if not 0 <= local_rank < nproc_per_node:
        raise ValueError(f"launch_environment: expected a local rank below {nproc_per_node}, got <{local_rank}>")
    bounds = process_bounds(nproc_per_node)
    return {
        "CLOUD_TPU_TASK_ID": str(local_rank),
        "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
        "TPU_PROCESS_ADDRESSES": ",".join(f"localhost:{port + i}" for i in range(nproc_per_node)),
        "TPU_PROCESS_BOUNDS": ",".join(map(str, bounds)),
        "TPU_PROCESS_PORT": str(port + local_rank),
        "TPU_VISIBLE_CHIPS": str(local_rank),
    }


def process_bounds(count: int) -> tuple[int, int, int]:
    """The most square grid of ``count`` chips, longer side second: 4 -> (2, 2, 1), 8 -> (2, 4, 1)."""
    rows = max(r for r in range(1, int(count**0.5) + 1) if count % r == 0)
    return rows, count // rows, 1


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m torch.tpu.distributed.environment")
    parser.add_argument("--nproc-per-node", type=int, default=int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    parser.add_argument("--local-rank", type=int, default=int(os.environ.get("LOCAL_RANK", "0")))
    parser.add_argument("--port", type=int, default=8471)
    options = parser.parse_args(arguments)
    for name, value in launch_environment(options.nproc_per_node, options.local_rank, options.port).items():
        print(f"{name}={value}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
