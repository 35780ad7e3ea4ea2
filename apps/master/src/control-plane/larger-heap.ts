import { ownEnvironment } from "@heddle/base/process/exit-with-parent";
import { heapBytes } from "./state-memory.ts";

/**
 * Starts this process's program again, in this process, with such a heap. Returns where it has as much,
 * and where the system or a channel to its parent does not allow it.
 */
export function restartWithHeap(mib: number, onRestart: () => void): void {
  const flag = `--max-old-space-size=${mib}`;
  const isTried = process.execArgv.includes(flag) || mib * 2 ** 20 <= heapBytes();
  if (isTried || process.connected || !process.execve) return;
  onRestart();
  const args = [process.execPath, ...process.execArgv, flag, ...process.argv.slice(1)];
  process.execve(process.execPath, args, ownEnvironment());
}
