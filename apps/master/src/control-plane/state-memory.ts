import { readdir, stat } from "node:fs/promises";
import { totalmem } from "node:os";
import { join } from "node:path";
import { getHeapStatistics } from "node:v8";
import { AppError } from "@heddle/base/errors";
import { CLUSTER_SETTINGS } from "@heddle/contracts/api/settings";

const MEBIBYTE = 2 ** 20;
/** V8's limit counts the young generation too, which has this much at most. */
const YOUNG_BYTES = 192 * MEBIBYTE;
/** The heap that a master needs beside the state. */
const BASE_BYTES = 96 * MEBIBYTE;
/** Heap for a byte that the state counts: 0.2 to 1.45 were measured, by the kind of its jobs. */
const HEAP_PER_BYTE = 1.5;
/** The copies of the state while a snapshot of the leader replaces it. */
const STATES = 2;
/** The most of this machine's memory for the heap: the log and its buffers lie beside it. */
const HEAP_SHARE = 0.75;
/** The most of this machine's memory for the log, all of which is read at a start. */
const LOG_SHARE = 0.5;

/** Bytes of the old generation, where the state is. */
export function heapBytes(): number {
  const limit = getHeapStatistics().heap_size_limit;
  return Math.max(limit - YOUNG_BYTES, limit / 4);
}

/** The memory of this machine that this process may use, by the limits of its container too. */
function machineBytes(): number {
  return Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY);
}

/** The largest heap that this machine has room for, in MiB. */
export function largestHeapMib(): number {
  return Math.floor((HEAP_SHARE * machineBytes()) / MEBIBYTE);
}

/** Throws `insufficient_memory` where the log in the directory takes more than is kept for it. */
export async function checkLogFits(
  directory: string,
  mostBytes: number = LOG_SHARE * machineBytes(),
): Promise<void> {
  const folder = join(directory, "wal");
  const names = await readdir(folder).catch(() => []);
  const files = await Promise.all(names.map((name) => stat(join(folder, name))));
  const bytes = files.reduce((sum, { size }) => sum + size, 0);
  if (bytes <= mostBytes) return;
  const [has, most] = [bytes, mostBytes].map((each) => `${Math.ceil(each / MEBIBYTE)} MiB`);
  const message = `the log in ${folder} takes ${has}, and this master has memory for ${most} of it`;
  throw new AppError("insufficient_memory", message);
}

/** The largest state that such a heap can load. */
export function loadableBytes(heap: number = heapBytes()): number {
  return Math.max(0, heap - BASE_BYTES) / HEAP_PER_BYTE;
}

/** The largest value for the setting `state_mib` that such a heap holds. */
export function stateRoomMib(heap: number = heapBytes()): number {
  const room = Math.floor(loadableBytes(heap) / STATES / MEBIBYTE);
  const { minimum, maximum } = CLUSTER_SETTINGS.state_mib;
  return Math.min(maximum, Math.max(minimum, room));
}

/** What `--max-old-space-size` must be at least for that value of `state_mib`. */
export function heapMibFor(stateMib: number): number {
  return Math.ceil(STATES * HEAP_PER_BYTE * stateMib + (BASE_BYTES + YOUNG_BYTES) / MEBIBYTE);
}

/** What the operator of a master can do whose memory does not hold the state. */
export function memoryAdvice(): string {
  const mib = (bytes: number) => `${Math.floor(bytes / MEBIBYTE)} MiB`;
  return `Its heap is ${mib(heapBytes())} and its machine has ${mib(machineBytes())}. Start it with more: NODE_OPTIONS=--max-old-space-size=N, in MiB, on a machine or in a container with a third more than N. Nothing is lost. Then remove jobs, keys or models that are not needed, or lower the cluster setting state_mib.`;
}
