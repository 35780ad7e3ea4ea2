import { readFileSync } from "node:fs";
import { FreshRun } from "@heddle/base/async/fresh-run";
import { runInTurns } from "@heddle/base/async/steps";
import { ProcessScan } from "./process-scan.ts";
import { type ProcessEntry, readProcess } from "./process-tree.ts";
import { RecentGroups } from "./recent-groups.ts";

const fresh = new FreshRun(() => runInTurns(() => ProcessScan.inSteps({ withMarks: false })));
const groups = new RecentGroups({
  scan: () => fresh.get(),
  started: startedProcesses,
  nowMs: () => performance.now(),
});

/**
 * The processes of the group and session that this process leads, or led, with their present memory.
 * One that was started meanwhile may be missing for five seconds.
 */
export async function watchedGroup(leader: { readonly pid: number }): Promise<ProcessEntry[]> {
  const found = (await groups.get()).groupOf(leader);
  return found.flatMap(({ pid, startTime }) => {
    const entry = readProcess(pid);
    return entry?.startTime === startTime ? entry : [];
  });
}

/** Some sandboxes always show 0. */
function startedProcesses(): number | undefined {
  try {
    return (
      Number(/^processes (\d+)$/m.exec(readFileSync("/proc/stat", "latin1"))?.[1]) || undefined
    );
  } catch {
    return undefined; // No Linux.
  }
}
