import { seededRandom } from "@heddle/base/random";
import { MasterGroup, type MasterPlacement } from "../master-group.ts";
import { Workload } from "./workload.ts";

/** A group of masters under a workload, and the faults that a seed chooses. */
export interface FaultRun {
  readonly group: MasterGroup;
  readonly workload: Workload;
  readonly random: () => number;
  pick<T>(choices: readonly T[]): T;
  /** The rounds of faults: a few, or as many as fit into HEDDLE_FAULT_MINUTES. */
  rounds(few: number): Generator<number, void>;
  /** Ends the workload and checks its history, and the final state of every running master. */
  finish(): Promise<void>;
  /**
   * After `finish`, for the next fault on the same masters: starts all of them and another history.
   */
  resume(title: string): Promise<void>;
  /** Ends the workload and the masters. */
  close(): Promise<void>;
}

export interface FaultRunOptions {
  readonly title: string;
  readonly masters?: number;
  readonly flags?: readonly string[];
  readonly place?: (name: string) => MasterPlacement;
  readonly clients?: number;
}

/** Starts the masters and the workload. The seed is printed; HEDDLE_FAULT_SEED sets it. */
export async function startFaultRun(options: FaultRunOptions): Promise<FaultRun> {
  const seed = Number(process.env["HEDDLE_FAULT_SEED"] ?? Math.floor(Math.random() * 1e6));
  process.stdout.write(`${options.title}: HEDDLE_FAULT_SEED=${seed}\n`);
  const random = seededRandom(seed);
  const group = new MasterGroup(options.masters ?? 3, options.flags ?? [], options.place);
  try {
    await group.startAll();
    await group.leader();
  } catch (error) {
    await group.close();
    throw error;
  }
  const urls = () => group.runningNames.map((name) => group.url(name) as string);
  const target = { urls, adminKey: group.adminKey };
  const workload = new Workload(target, { seed, clients: options.clients ?? 5 }).start();
  let { title } = options;
  const finish = async () => {
    await workload.stop();
    workload.check();
    for (const url of urls()) await workload.checkMaster(url);
    const { history, created, retried, replayed } = workload;
    const figures = `${history.length} calls on settings, ${created.size} keys, ${retried} attempts without an answer, ${replayed} replayed`;
    process.stdout.write(`${title}: linearizable; ${figures}\n`);
  };
  const resume = async (next: string) => {
    title = next;
    process.stdout.write(`${title}: HEDDLE_FAULT_SEED=${seed}\n`);
    await group.startMissing();
    await workload.resume();
  };
  const close = async () => {
    await workload.stop();
    await group.close();
  };
  const pick = <T>(choices: readonly T[]) => choices[Math.floor(random() * choices.length)] as T;
  return { group, workload, random, pick, rounds, finish, resume, close };
}

function* rounds(few: number): Generator<number, void> {
  const minutes = Number(process.env["HEDDLE_FAULT_MINUTES"] ?? 0);
  const endMs = performance.now() + minutes * 60_000;
  for (let round = 0; round < few || performance.now() < endMs; round++) yield round;
}

/** Maximum duration of a fault test, in milliseconds. */
export const FAULT_TIMEOUT_MS =
  600_000 + 2 * 60_000 * Number(process.env["HEDDLE_FAULT_MINUTES"] ?? 0);
