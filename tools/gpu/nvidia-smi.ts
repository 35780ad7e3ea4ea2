import { execFile, spawn } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);

/** What the driver says of a GPU. */
export interface Gpu {
  readonly name: string;
  readonly memory_mb: number;
  readonly driver: string;
}

/** How often the driver's share of busy time is read; it averages over at least as long. */
const SAMPLE_MS = 200;

/** The GPUs of this machine in the driver's order; none where there is no driver. */
export async function gpusOf(): Promise<readonly Gpu[]> {
  try {
    const query = "--query-gpu=name,memory.total,driver_version";
    const { stdout } = await run("nvidia-smi", [query, "--format=csv,noheader,nounits"], {
      timeout: 30_000,
    });
    const lines = stdout.split("\n").filter((line) => line.trim() !== "");
    return lines.map((line) => {
      const [name = "", memory = "", driver = ""] = line.split(",").map((text) => text.trim());
      return { name, memory_mb: Number(memory), driver };
    });
  } catch {
    return [];
  }
}

/** Runs the work and gives the share of time in which the GPU ran nothing; null without a GPU. */
export async function idleShareDuring<T>(
  device: string,
  work: () => Promise<T>,
): Promise<{ readonly result: T; readonly idle: number | null }> {
  if (device === "cpu") return { result: await work(), idle: null };
  const query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"];
  const child = spawn("nvidia-smi", [...query, `--id=${device}`, `--loop-ms=${SAMPLE_MS}`], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  let text = "";
  child.stdout.on("data", (data: Buffer) => {
    text += data.toString();
  });
  try {
    const result = await work();
    const busy = text.trim().split("\n").map(Number).filter(Number.isFinite);
    // The first sample is of the time before.
    const during = busy.slice(1);
    if (during.length === 0) return { result, idle: null };
    return { result, idle: 1 - during.reduce((sum, each) => sum + each, 0) / during.length / 100 };
  } finally {
    child.kill();
  }
}
