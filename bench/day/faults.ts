import { execFileSync } from "node:child_process";
import { closeSync, mkdirSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { RunningHeddle } from "../support/heddle-up.ts";
import { type NodeProcess, nodesAmong } from "./nodes.ts";

export interface Fault {
  readonly atMs: number;
  readonly what: "kill" | "freeze" | "full disk";
  readonly target: string;
}

const MAX_FREEZE_MS = 15_000;
const FULL_DISK_MS = 10_000;
const SMALL_DISK_MIB = 768;
const FILL_BYTES = 1 << 20;

/** The node whose disk is small enough to be filled. */
const FULL_NODE = "worker-1";

/**
 * Mounts a small file system for the data of one worker. Returns why it cannot be; undefined where
 * it was mounted.
 */
export function mountSmallDisk(dataDirectory: string): string | undefined {
  const folder = join(dataDirectory, FULL_NODE);
  mkdirSync(folder, { recursive: true });
  try {
    const options = `size=${SMALL_DISK_MIB}m,mode=0755`;
    execFileSync("mount", ["-t", "tmpfs", "-o", options, "heddle-day", folder], { stdio: "pipe" });
    return undefined;
  } catch (error) {
    return `no disk is filled: ${(error as Error).message.trim().split("\n").at(-1)}`;
  }
}

export function unmountSmallDisk(dataDirectory: string): void {
  execFileSync("umount", ["--lazy", join(dataDirectory, FULL_NODE)]);
}

/** One fault at an interval, as a seed chooses them: at most one node is frozen or full at a time. */
export class FaultMaker {
  readonly made: Fault[] = [];
  readonly #cluster: RunningHeddle;
  readonly #random: () => number;
  readonly #fillsDisk: boolean;

  constructor(cluster: RunningHeddle, random: () => number, fillsDisk: boolean) {
    this.#cluster = cluster;
    this.#random = random;
    this.#fillsDisk = fillsDisk;
  }

  /** Until the signal aborts; what is frozen or full then is healed before it resolves. */
  async run(intervalMs: number, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(intervalMs, undefined, { signal }).catch(() => {});
      if (!signal.aborted) await this.#makeOne(signal);
    }
  }

  async #makeOne(signal: AbortSignal): Promise<void> {
    const chance = this.#random();
    const processes = this.#cluster.processes();
    const nodes = nodesAmong(processes);
    const full = nodes.find(({ name }) => name === FULL_NODE);
    if (chance < 0.1 && this.#fillsDisk && full) return this.#fill(full, signal);
    if (chance < 0.35) return this.#freeze(this.#pick(nodes), signal);
    const engines = processes.filter(({ role }) => role === "engine");
    const targets = [...nodes, ...engines.map(({ pid, role }) => ({ pid, name: role }))];
    this.#kill(this.#pick(targets));
  }

  #pick<T>(list: readonly T[]): T | undefined {
    return list[Math.floor(this.#random() * list.length)];
  }

  #kill(target: { readonly pid: number; readonly name: string } | undefined): void {
    if (target && signalTo(target.pid, "SIGKILL")) this.#note("kill", target.name);
  }

  async #freeze(node: NodeProcess | undefined, signal: AbortSignal): Promise<void> {
    if (!node || !signalTo(node.pid, "SIGSTOP")) return;
    this.#note("freeze", node.name);
    const forMs = this.#random() * MAX_FREEZE_MS;
    await sleep(forMs, undefined, { signal }).catch(() => {});
    signalTo(node.pid, "SIGCONT");
  }

  async #fill(node: NodeProcess, signal: AbortSignal): Promise<void> {
    this.#note("full disk", node.name);
    const file = join(node.folder, "filler");
    const descriptor = openSync(file, "w");
    try {
      for (let mib = 0; mib < SMALL_DISK_MIB; mib++) {
        writeSync(descriptor, new Uint8Array(FILL_BYTES));
      }
    } catch {
      // It is full.
    } finally {
      closeSync(descriptor);
    }
    await sleep(FULL_DISK_MS, undefined, { signal }).catch(() => {});
    rmSync(file);
  }

  #note(what: Fault["what"], target: string): void {
    this.made.push({ atMs: performance.now(), what, target });
  }
}

/** Whether the process existed. */
function signalTo(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}
