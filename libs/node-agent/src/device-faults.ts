import { readFileSync } from "node:fs";

/**
 * Devices declared unhealthy, by index: lines of `INDEX REASON` in a file that an operator or a test
 * writes. Without the file there are none.
 */
export function readDeviceFaults(path: string): ReadonlyMap<number, string> {
  let text = "";
  try {
    text = readFileSync(path, "utf8");
  } catch {
    return new Map();
  }
  const faults = new Map<number, string>();
  for (const line of text.split("\n").slice(0, MAX_LINES)) {
    const [, index, why] = /^\s*(\d{1,4})(?:\s+(.{1,200}))?/.exec(line) ?? [];
    if (index !== undefined) faults.set(Number(index), why?.trim() || "declared unhealthy");
  }
  return faults;
}

const MAX_LINES = 1_024;
