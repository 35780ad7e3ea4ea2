import { statfs } from "node:fs/promises";
import { arch, cpus, freemem, platform, totalmem } from "node:os";
import type { Hardware } from "@heddle/contracts/generated/heddle/v1/Hardware";
import type { Heartbeat } from "@heddle/contracts/generated/heddle/v1/Heartbeat";
import { GpuProbe } from "./gpu-probe.ts";

/** Between two measurements of CPU and disk. */
const sampleMs = 1_000;

/** What a node reports of the machine it runs on, sampled in the background. */
export class Machine {
  readonly #dataDirectory: string;
  readonly #gpus = new GpuProbe();
  #timer: NodeJS.Timeout | undefined;
  #cpu = cpuTimes();
  #cpuPercent = 0;
  #disk = { freeBytes: 0, totalBytes: 0 };

  constructor(dataDirectory: string) {
    this.#dataDirectory = dataDirectory;
  }

  /** Resolves after the first samples, so that the registration names the GPUs. */
  async start(): Promise<void> {
    await Promise.all([this.#sampleDisk(), this.#gpus.start()]);
    this.#timer = setInterval(() => {
      this.#sampleCpu();
      void this.#sampleDisk();
    }, sampleMs);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#gpus.stop();
  }

  hardware(): Hardware {
    const processors = cpus();
    return {
      platform: `${platform()}-${arch()}`,
      cpuModel: processors[0]?.model ?? "unknown",
      cpuCount: processors.length,
      memoryBytes: totalmem(),
      gpus: [...this.#gpus.gpus],
    };
  }

  /** A heartbeat's share that is about the machine. */
  usage(): Omit<Heartbeat, "replicas"> {
    return {
      cpuPercent: this.#cpuPercent,
      memoryUsedBytes: totalmem() - freemem(),
      diskFreeBytes: this.#disk.freeBytes,
      diskTotalBytes: this.#disk.totalBytes,
      gpus: [...this.#gpus.gpus],
    };
  }

  #sampleCpu(): void {
    const now = cpuTimes();
    const total = now.total - this.#cpu.total;
    if (total > 0) this.#cpuPercent = 100 * (1 - (now.idle - this.#cpu.idle) / total);
    this.#cpu = now;
  }

  async #sampleDisk(): Promise<void> {
    try {
      const disk = await statfs(this.#dataDirectory);
      this.#disk = { freeBytes: disk.bavail * disk.bsize, totalBytes: disk.blocks * disk.bsize };
    } catch {
      // A file system that gives no figures is reported as the last known ones, at first zero.
    }
  }
}

/** Milliseconds since boot over all cores. */
function cpuTimes(): { idle: number; total: number } {
  let idle = 0;
  let total = 0;
  for (const { times } of cpus()) {
    idle += times.idle;
    total += times.user + times.nice + times.sys + times.idle + times.irq;
  }
  return { idle, total };
}
