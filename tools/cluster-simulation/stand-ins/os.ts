import { mkdirSync } from "node:fs";
import os from "node:os";
import { join } from "node:path";
import { here } from "../simulated-process.ts";
import { worldOf } from "../world.ts";

/** `node:os` of a simulated machine. */
export * from "node:os";
export default os;

const CORES = 8;
const MEMORY_BYTES = 64 * 2 ** 30;

export function uptime(): number {
  const process = here();
  return process ? process.uptimeMs() / 1000 : os.uptime();
}

export function cpus(): os.CpuInfo[] {
  const times = { user: 0, nice: 0, sys: 0, idle: 1, irq: 0 };
  return Array.from({ length: CORES }, () => ({ model: "simulated", speed: 1_000, times }));
}

export const availableParallelism = () => CORES;
export const totalmem = () => MEMORY_BYTES;
export const freemem = () => MEMORY_BYTES / 2;
/** Each machine's own. */
export function tmpdir(): string {
  const process = here();
  if (!process) return os.tmpdir();
  const folder = join(worldOf(process).directory, `${process.machine}-tmp`);
  mkdirSync(folder, { recursive: true });
  return folder;
}

export const hostname = () => here()?.machine ?? os.hostname();
