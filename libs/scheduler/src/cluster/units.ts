import type { NodeScalars, NodeSnapshot, TaskRequest } from "../model.ts";

/** The scalar amounts in the order of the ledger's columns. */
export const SCALARS = [
  "cpuMilli",
  "memoryMib",
  "localSsdGb",
  "ioOperationsPerSec",
  "networkMbps",
  "tasks",
] as const satisfies readonly (keyof NodeScalars)[];

/** The column of CPU in the ledger's scalars. */
export const CPU = 0;

/** GPU amounts count in thousandths of one device. */
export const WHOLE_DEVICE_MILLI = 1000;

/** What may be promised beyond what is there: rates and memory, which tasks seldom use in full. */
const OVERCOMMITTED: ReadonlySet<keyof NodeScalars> = new Set(["cpuMilli", "memoryMib"]);

/**
 * What a node offers of one amount, whole: CPU and memory times the ratio, which may be below 1.
 * GPUs, storage, I/O, network and places are never promised twice.
 */
export function offered(
  { capacity }: Pick<NodeSnapshot, "capacity">,
  name: keyof NodeScalars,
  overcommitRatio: number,
): number {
  return Math.floor(capacity[name] * (OVERCOMMITTED.has(name) ? overcommitRatio : 1));
}

/** Thousandths of GPU that one task holds. */
export function gpuMilliOf(request: TaskRequest): number {
  return request.gpus === 0 ? 0 : request.gpus * request.gpuMilli;
}
