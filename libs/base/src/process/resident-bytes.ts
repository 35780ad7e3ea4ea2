import { readFileSync } from "node:fs";

const BYTES_PER_KIB = 1024;

/** The memory of a process; 0 where it is gone, or this is no Linux. */
export function residentBytesOf(pid: number | undefined): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    return Number(/^VmRSS:\s*(\d+)/m.exec(status)?.[1] ?? 0) * BYTES_PER_KIB;
  } catch {
    return 0;
  }
}
