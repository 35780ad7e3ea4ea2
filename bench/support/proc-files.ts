import { readdirSync, readFileSync } from "node:fs";

/** Linux's data on a process; undefined once it is gone. */
export interface ProcessSample {
  readonly pid: number;
  readonly residentBytes: number;
  readonly descriptors: number;
  /** User and system time since the process started; a clock tick is 10 ms. */
  readonly cpuMs: number;
}

const pageBytes = 4096;
const clockTickMs = 10;

export function sampleProcess(pid: number): ProcessSample | undefined {
  try {
    const fields = statFields(pid);
    return {
      pid,
      residentBytes: Number(fields[21]) * pageBytes,
      descriptors: readdirSync(`/proc/${pid}/fd`).length,
      cpuMs: (Number(fields[11]) + Number(fields[12])) * clockTickMs,
    };
  } catch {
    return undefined;
  }
}

/** CPU time of all live threads of the process, in ms, to the nanosecond. */
export function threadsCpuMs(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`);
  const nanoseconds = threads.map((thread) =>
    Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8").split(" ")[0]),
  );
  return nanoseconds.reduce((sum, one) => sum + one, 0) / 1e6;
}

/** The process and all its descendants, parents first. */
export function processTree(root: number): readonly number[] {
  const children = new Map<number, number[]>();
  for (const entry of readdirSync("/proc")) {
    const pid = Number(entry);
    if (!Number.isInteger(pid)) continue;
    const parent = parentOf(pid);
    if (parent === undefined) continue;
    children.set(parent, [...(children.get(parent) ?? []), pid]);
  }
  const found = [root];
  for (const pid of found) found.push(...(children.get(pid) ?? []));
  return found;
}

/** The arguments a process was started with. */
export function commandLine(pid: number): readonly string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").slice(0, -1);
  } catch {
    return [];
  }
}

/** Distinguishes a process from a later one with the same pid: ticks from boot to its start. */
export function processStartTicks(pid: number): string | undefined {
  try {
    return statFields(pid)[19];
  } catch {
    return undefined;
  }
}

function parentOf(pid: number): number | undefined {
  try {
    return Number(statFields(pid)[1]);
  } catch {
    return undefined;
  }
}

/** The fields after the command's name, which may hold spaces and brackets; [0] is the state. */
function statFields(pid: number): readonly string[] {
  const text = readFileSync(`/proc/${pid}/stat`, "utf8");
  return text.slice(text.lastIndexOf(")") + 2).split(" ");
}
