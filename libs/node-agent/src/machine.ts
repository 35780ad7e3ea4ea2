import { readFileSync, statSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { arch, cpus, freemem, platform, totalmem } from "node:os";
import { join } from "node:path";
import type { Gpu } from "@heddle/contracts/generated/heddle/v1/Gpu";
import type { Hardware } from "@heddle/contracts/generated/heddle/v1/Hardware";
import type { Heartbeat } from "@heddle/contracts/generated/heddle/v1/Heartbeat";
import type { ResourceLimit } from "@heddle/contracts/generated/heddle/v1/ResourceLimit";
import { resourceLimits } from "./control-groups.ts";
import { readDeviceFaults } from "./device-faults.ts";
import { GpuProbe } from "./gpu-probe.ts";

/** Sampling interval of CPU and disk. */
const SAMPLE_MS = 1_000;

/** The operator's settings of what a machine cannot measure itself. */
export interface MachineOptions {
  /** Devices that replace those of the machine. */
  readonly simulatedGpus?: readonly Gpu[] | undefined;
  /** What an outer system gives to tasks, in place of what the worker itself sees. */
  readonly place?: { readonly offer: PlaceOffer | undefined } | undefined;
  /** Absent: the free space of the data directory's disk at the start. */
  readonly localSsdBytes?: number | undefined;
  readonly ioOperationsPerSec?: number | undefined;
  readonly networkMbps?: number | undefined;
  /** The memory for jobs and models. */
  readonly memoryBytes?: number | undefined;
}

/** The resources for tasks in Kubernetes or a batch system, whose id it has. */
export interface PlaceOffer {
  readonly id: string;
  /** Absent: the machine's own. */
  readonly gpus: readonly Gpu[] | undefined;
  readonly cpuMilli: number;
  readonly memoryBytes: number;
}

/** A node's reports on its machine, sampled in the background. */
export class Machine {
  readonly #dataDirectory: string;
  readonly #gpus = new GpuProbe();
  readonly #options: MachineOptions;
  readonly #faultListeners = new Set<(gpu: Gpu) => void>();
  #faults: ReadonlyMap<number, string> = new Map();
  #deviceReadings = 0;
  #timer: NodeJS.Timeout | undefined;
  #cpu = cpuTimes();
  #cpuPercent = 0;
  #freeAtStartBytes = 0;
  #disk = { freeBytes: 0, totalBytes: 0 };

  constructor(dataDirectory: string, options: MachineOptions = {}) {
    this.#dataDirectory = dataDirectory;
    this.#options = options;
  }

  /** The devices, real or simulated, each with its fault, if any. */
  gpus(): Gpu[] {
    const gpus = this.#fixedGpus ?? this.#gpus.gpus;
    return gpus.map((gpu) => ({ ...gpu, fault: this.#faults.get(gpu.index ?? -1) ?? "" }));
  }

  get #fixedGpus(): readonly Gpu[] | undefined {
    return this.#options.simulatedGpus ?? this.#options.place?.offer?.gpus;
  }

  /** Called once for each device that becomes unhealthy. */
  onFault(listener: (gpu: Gpu) => void): void {
    this.#faultListeners.add(listener);
  }

  /** Resolves after the first samples, so that the registration includes the GPUs. */
  async start(): Promise<void> {
    await Promise.all([this.#sampleDisk(), this.#fixedGpus ? undefined : this.#gpus.start()]);
    this.#freeAtStartBytes = this.#disk.freeBytes;
    this.#sampleFaults();
    this.#timer = setInterval(() => {
      this.#sampleCpu();
      this.#sampleFaults();
      void this.#sampleDisk();
    }, SAMPLE_MS);
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
      gpus: this.gpus(),
      localSsdBytes: this.#options.localSsdBytes ?? this.#freeAtStartBytes,
      ioOperationsPerSec: this.#options.ioOperationsPerSec ?? 0,
      networkMbps: this.#options.networkMbps ?? 0,
      hostId: hostId(),
      limits: [...this.#offer(), ...this.#limits()],
      diskId: String(statSync(this.#dataDirectory, { throwIfNoEntry: false })?.dev ?? ""),
    };
  }

  /** A limit of this node alone. */
  #offer(): ResourceLimit[] {
    const { memoryBytes } = this.#options;
    const id = `offer:${this.#dataDirectory}`;
    return memoryBytes === undefined ? [] : [{ id, memoryBytes, isOffer: true }];
  }

  /** The machine's part of a heartbeat. */
  usage(): Omit<Heartbeat, "replicas" | "tasks"> {
    return {
      cpuPercent: this.#cpuPercent,
      memoryUsedBytes: totalmem() - freemem(),
      diskFreeBytes: this.#disk.freeBytes,
      diskTotalBytes: this.#disk.totalBytes,
      gpus: this.gpus(),
      deviceReadings: this.#deviceReadings,
    };
  }

  /** The worker's own control group does not bound tasks elsewhere. */
  #limits(): ResourceLimit[] {
    const offer = this.#options.place?.offer;
    if (!offer) return resourceLimits();
    const { id, cpuMilli, memoryBytes } = offer;
    return [{ id: `${id}-${hostId()}`, cpuMilli, memoryBytes }];
  }

  #sampleFaults(): void {
    const before = this.#faults;
    this.#deviceReadings++;
    this.#faults = readDeviceFaults(join(this.#dataDirectory, "gpu-faults"));
    for (const gpu of this.gpus()) {
      if (!gpu.fault || before.has(gpu.index ?? -1)) continue;
      for (const listener of this.#faultListeners) listener(gpu);
    }
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
      // A file system without values is reported with the last known ones, initially zero.
    }
  }
}

/**
 * Created by Linux at each boot (random(4)). Unlike host names it is equal in all containers of a
 * machine, and different in each virtual machine, as cores and memory are.
 */
function hostId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    return "";
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
