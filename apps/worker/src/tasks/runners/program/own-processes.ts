import { readdirSync, readFileSync } from "node:fs";
import { constants } from "node:os";
import { RUNNER_MARK } from "./messages.ts";

/** In a container of its own; else the runner's processes are those of its job. */
export const isFirst = process.pid === 1;
const name = process.env[RUNNER_MARK] ?? "";
const ofJob = `\0${RUNNER_MARK}=${name}\0`;

if (!isFirst && name === "") {
  throw new Error(
    `the runner kills all other processes: it must be the first, or have a job in ${RUNNER_MARK}`,
  );
}

/** All processes of the container or of the job, but the runner. */
function otherProcesses(): number[] {
  const all = readdirSync("/proc")
    .map(Number)
    .filter((pid) => Number.isSafeInteger(pid) && pid > 1 && pid !== process.pid)
    .flatMap((pid) => runningProcess(pid) ?? []);
  const chosen = isFirst ? all : all.filter(isOwn(new Map(all.map((each) => [each.pid, each]))));
  return chosen.map(({ pid }) => pid);
}

interface RunningProcess {
  readonly pid: number;
  readonly parent: number;
}

/** A batch system ends what has left its parents and its environment, when the runner ends. */
function isOwn(all: ReadonlyMap<number, RunningProcess>) {
  return ({ pid, parent }: RunningProcess): boolean => {
    for (let at = parent; at > 1; at = all.get(at)?.parent ?? 0) {
      if (at === process.pid) return true;
    }
    return environmentOf(pid).includes(ofJob);
  };
}

function environmentOf(pid: number): string {
  try {
    return `\0${readFileSync(`/proc/${pid}/environ`, "latin1")}`;
  } catch {
    return "";
  }
}

/** Signals the processes, or those that handle it; returns their number. */
export function signalAll(signal: NodeJS.Signals, onlyCaught = false): number {
  let count = 0;
  for (const pid of otherProcesses()) {
    if (onlyCaught && !handles(pid, signal)) continue;
    try {
      process.kill(pid, signal);
      count += 1;
    } catch {
      // It has ended.
    }
  }
  return count;
}

function runningProcess(pid: number): RunningProcess | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    const [state = "", parent] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return /^[ZX]/.test(state) ? undefined : { pid, parent: Number(parent) };
  } catch {
    return undefined;
  }
}

function handles(pid: number, signal: NodeJS.Signals): boolean {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "latin1");
    const mask = BigInt(`0x${/^SigCgt:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? "0"}`);
    return ((mask >> BigInt(constants.signals[signal] - 1)) & 1n) === 1n;
  } catch {
    return false;
  }
}
