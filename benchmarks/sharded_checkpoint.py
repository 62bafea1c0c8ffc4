"""What a checkpoint of sharded weights costs in memory: 4 gloo processes, FSDP2, AdamW.

    python -m benchmarks.sharded_checkpoint

Prints, for each rank, how far the largest resident memory while saving, and while loading, lies above that before it.
"""

import os
import socket
import sys
import tempfile
from pathlib import Path
from threading import Event, Thread

import torch
from torch.multiprocessing.spawn import spawn

WIDTH, LAYERS, RANKS = 1536, 12, 4


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Peak:
    """The largest resident memory while it is open, above that at the start; looked at every 2 ms."""

    def __enter__(self) -> "Peak":
        self.start, self.most, self.done = resident(), 0, Event()
        self.thread = Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while not self.done.wait(0.002):
            self.most = max(self.most, resident() - self.start)

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()


def rank(index: int, port: int, folder: str) -> None:
    os.environ |= {"RANK": str(index), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from reglet.engine import checkpoint
    from reglet.engine.shard import shard

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    net = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH)) for _ in range(LAYERS)))
    shard(net, init_device_mesh("cpu", (RANKS,)))
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    net(torch.randn(4, WIDTH)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    path = Path(folder) / "x.safetensors"
    with Peak() as saving:
        checkpoint.write(path, checkpoint.collect(net, optimizer), {}, writes=index == 0)
    dist.barrier()
    with Peak() as loading:
        checkpoint.restore(checkpoint.Stored(path), net, optimizer)
    dist.barrier()
    largest, total = 4 * WIDTH**2 / 2**20, path.stat().st_size / 2**20
    if index == 0:
        print(f"largest tensor {largest:.1f} MiB, whole checkpoint {total:.0f} MiB, a rank's share {total / RANKS:.0f}")
    dist.barrier()
    print(f"rank {index}: saving {saving.most / 2**20:.0f} MiB, loading {loading.most / 2**20:.0f} MiB", flush=True)
    dist.destroy_process_group()


def main() -> int:
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        spawn(rank, args=(port, folder), nprocs=RANKS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
