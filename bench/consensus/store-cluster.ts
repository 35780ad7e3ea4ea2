import { setTimeout as delay } from "node:timers/promises";
import { Child } from "../support/child-process.ts";
import { repositoryRoot } from "../support/command-line.ts";
import { sampleProcess } from "../support/proc-files.ts";
import type { KvClient, MemberView } from "./kv-client.ts";

/** The servers' core; the clients use the other one. */
const SERVER_CORE = 0;
export const clientCore = 1;

/** How to start and query one kind of store. */
export interface StoreKind {
  readonly name: string;
  command(member: number): { readonly command: string; readonly args: readonly string[] };
  /** Where clients reach a member. */
  address(member: number): string;
  view(member: number): Promise<MemberView>;
  /** Makes the leader hand over to another member. */
  transfer(leader: number, to: number): Promise<void>;
  connect(member: number): KvClient;
}

const startTimeoutMs = 30_000;

/** Three members of one store as processes on one core; members have the numbers 1 to 3. */
export class StoreCluster {
  readonly kind: StoreKind;
  readonly #folder: string;
  readonly #children = new Map<number, Child>();

  constructor(kind: StoreKind, folder: string) {
    this.kind = kind;
    this.#folder = folder;
  }

  get name(): string {
    return this.kind.name;
  }

  get members(): number[] {
    return [...this.#children.keys()];
  }

  /** Resolves when there is a leader. */
  async start(): Promise<void> {
    for (const member of [1, 2, 3]) this.startMember(member);
    await this.leader();
  }

  startMember(member: number): void {
    const child = new Child({
      ...this.kind.command(member),
      name: `${this.name} ${member}`,
      core: SERVER_CORE,
      cwd: repositoryRoot,
      logFile: `${this.#folder}/${this.name}-${member}.log`,
    });
    this.#children.set(member, child);
  }

  /** Kills a member. */
  kill(member: number): void {
    const child = this.#children.get(member);
    this.#children.delete(member);
    if (child) process.kill(child.pid, "SIGKILL");
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#children.values()].map((child) => child.stop()));
    this.#children.clear();
  }

  /** The members that answer, and their status. */
  async views(): Promise<ReadonlyMap<number, MemberView>> {
    const found = new Map<number, MemberView>();
    for (const member of this.members) {
      const view = await this.kind.view(member).catch(() => undefined);
      if (view) found.set(member, view);
    }
    return found;
  }

  /** Resolves with the leading member; waits for one, and for all members to answer. */
  async leader(): Promise<number> {
    const deadline = performance.now() + startTimeoutMs;
    while (performance.now() < deadline) {
      const views = await this.views();
      const [leader] = [...views].find(([, { isLeader }]) => isLeader) ?? [];
      if (leader !== undefined && views.size === this.members.length) return leader;
      await delay(50);
    }
    throw new Error(`${this.name} has no leader; its logs are in ${this.#folder}`);
  }

  /** User and system time of all members since they were started. */
  cpuMs(): number {
    let sum = 0;
    for (const { pid } of this.#children.values()) sum += sampleProcess(pid)?.cpuMs ?? 0;
    return sum;
  }
}
