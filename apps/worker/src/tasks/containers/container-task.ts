import { existsSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { retry } from "@heddle/base/async/retry";
import { handlesSignal } from "@heddle/base/process-alive";
import type { TaskEnd, TaskHandle, TaskUsage } from "../executors/executor.ts";
import type { OutputCopier } from "../executors/output-copier.ts";
import { freshScan, type ProcessScan } from "../executors/process-scan.ts";
import {
  markOf,
  memoryOf,
  type ProcessEntry,
  type ProcessRecord,
  readProcess,
  signalProcess,
} from "../executors/process-tree.ts";
import { signalFromExitStatus } from "../executors/signal-from-exit-status.ts";
import { watchedGroup } from "../executors/watched-group.ts";
import type { ContainerCli } from "./container-cli.ts";

const CALL_TIMEOUT_MS = 30_000;
/** How often a container is checked, by its process here or by its engine. */
const PROCESS_POLL_MS = 200;
const ENGINE_POLL_MS = 1_000;
const MAX_RETRY_MS = 10_000;
/** Between two rounds of killing, by the engine where the processes are not visible. */
const KILL_ROUND_MS = 500;
/** An unresponsive engine is abandoned after this where nothing of the task is left. */
const TIMEOUT_MS = 60_000;

const LIVE: ReadonlySet<string> = new Set(["running", "paused", "stopping", "restarting"]);

/** A container's state as the engine reports it. */
interface ContainerState {
  readonly status: string;
  readonly exitCode: number | undefined;
  readonly outOfMemory: boolean;
  /** The PID of its first process, as the engine's machine counts; 0 where there is none. */
  readonly pid: number;
}

export interface ContainerTaskOptions {
  readonly cli: ContainerCli;
  readonly name: string;
  /** Each of its processes carries it in its environment. */
  readonly mark: string;
  /** Where podman's monitor leaves a file when memory ran out. */
  readonly directory: string;
  /** 0: none. */
  readonly memoryLimitBytes: number;
  /** The client that carries its streams; absent where the container writes them directly. */
  readonly client: { readonly record: ProcessRecord; renew(): Promise<ProcessRecord> } | undefined;
  /** The copier of a container that writes directly; absent where a client carries its output. */
  readonly copier: OutputCopier | undefined;
  onTrouble(error: string): void;
}

/**
 * A task that runs in a container. Where its processes are visible here they are watched, signalled
 * and killed like those of any task, without the engine. The engine reports how it ended.
 */
export class ContainerTask implements TaskHandle {
  readonly exited: Promise<TaskEnd>;
  readonly #options: ContainerTaskOptions;
  /** Its first process, where it is one of this machine. */
  #first: ProcessRecord | undefined;
  #client: ProcessRecord | undefined;
  #killed = false;
  #isPaused = false;

  constructor(options: ContainerTaskOptions) {
    this.#options = options;
    this.#client = options.client?.record;
    // The end is reported when the log is complete.
    this.exited = this.#exited().then(async (end) => {
      await options.copier?.drained();
      return end;
    });
  }

  /** Only the client: everything else of a container is derived from the task's name. */
  get record(): { readonly client?: ProcessRecord | undefined } {
    return { client: this.#client };
  }

  async signal(name: NodeJS.Signals, onlyCaught = false): Promise<number> {
    const members = this.#membersIn(await freshScan());
    const chosen = onlyCaught ? members.filter(({ pid }) => handlesSignal(pid, name)) : members;
    if (members.length > 0) return chosen.filter(({ pid }) => signalProcess(pid, name)).length;
    // Handlers are not visible from here, and the signal would end processes without one.
    if (onlyCaught) return 0;
    return this.#signalByEngine("kill", "--signal", name);
  }

  async hold(isHeld: boolean): Promise<void> {
    if ((await this.signal(isHeld ? "SIGSTOP" : "SIGCONT", false)) > 0 && this.#first) return;
    if (isHeld === this.#isPaused) return;
    this.#isPaused = isHeld;
    await this.#signalByEngine(isHeld ? "pause" : "unpause");
  }

  async kill(): Promise<void> {
    const ended = this.exited.then(() => true);
    for (;;) {
      const output = freshScan().then((scan) => this.#killVisible(scan));
      if (await Promise.race([ended, output.then(() => delay(KILL_ROUND_MS))])) return;
    }
  }

  killNow(scan: ProcessScan): void {
    void this.#killVisible(scan);
  }

  /** Kills visible processes at once; for a remote engine it is a request. */
  async #killVisible(scan: ProcessScan): Promise<void> {
    this.#killed = true;
    for (const { pid } of this.#membersIn(scan)) signalProcess(pid, "SIGKILL");
    if (this.#first) return;
    if (this.#isPaused) await this.#signalByEngine("unpause");
    await this.#signalByEngine("kill");
  }

  /** The engine enforces the memory bound; the watch does where the engine cannot. */
  async usage(): Promise<TaskUsage> {
    const processes = this.#first ? await watchedGroup(this.#first) : [];
    return {
      memoryBytes: memoryOf(processes, this.#options.memoryLimitBytes),
      processes: processes.length,
    };
  }

  #membersIn(scan: ProcessScan): ProcessEntry[] {
    const { mark } = this.#options;
    const carriers = new Set([this.#client?.pid]);
    return scan.processesOf(this.#first, mark).filter(({ pid }) => !carriers.has(pid));
  }

  async #exited(): Promise<TaskEnd> {
    for (;;) {
      const state = await this.#state();
      if (!state || !LIVE.has(state.status)) return this.#endOf(state);
      this.#first ??= this.#see(state.pid);
      const first = this.#first;
      await this.#keepClient();
      if (!first) await delay(ENGINE_POLL_MS);
      while (first && isThere(first)) {
        await delay(PROCESS_POLL_MS);
        await this.#keepClient();
      }
      if (first) await delay(PROCESS_POLL_MS); // The engine notices a little later.
    }
  }

  /** The process, where the one with this id here belongs to this task. */
  #see(pid: number): ProcessRecord | undefined {
    const entry = pid > 1 ? readProcess(pid) : undefined;
    return entry && markOf(pid) === this.#options.mark ? entry : undefined;
  }

  async #keepClient(): Promise<void> {
    const { client, onTrouble } = this.#options;
    if (!client || !this.#client || isThere(this.#client)) return;
    const state = await this.#state();
    if (!state || !LIVE.has(state.status)) return;
    onTrouble("the client that carried its output has ended: output may be missing");
    this.#client = await client.renew();
    await delay(ENGINE_POLL_MS); // Restarts of a client that cannot stay are bounded.
  }

  /**
   * Undefined where there is no such container, or where nothing of it is left and the engine does
   * not answer.
   */
  #state(): Promise<ContainerState | undefined> {
    const giveUpAtMs = performance.now() + TIMEOUT_MS;
    const ask = async () => {
      try {
        return await this.#ask();
      } catch (error) {
        this.#options.onTrouble(error instanceof Error ? error.message : String(error));
        const isLate = this.#first && performance.now() > giveUpAtMs;
        if (isLate && this.#membersIn(await freshScan()).length === 0) return undefined;
        throw error;
      }
    };
    return retry(ask, { backoff: { baseMs: KILL_ROUND_MS, maxMs: MAX_RETRY_MS } });
  }

  async #ask(): Promise<ContainerState | undefined> {
    const { cli, name } = this.#options;
    const options = { timeoutMs: CALL_TIMEOUT_MS };
    const format = "{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}} {{.State.Pid}}";
    try {
      const output = await cli.run(
        ["inspect", "--type", "container", "--format", format, name],
        options,
      );
      const [status = "", code, oom, pid] = output.split(" ");
      return { status, exitCode: Number(code), outOfMemory: oom === "true", pid: Number(pid) };
    } catch (error) {
      // An error of the engine is distinguished here from an absent container.
      const args = ["ps", "--all", "--filter", `name=${name}`, "--format", "{{.Names}}"];
      const names = (await cli.run(args, options)).split("\n");
      if (names.includes(name)) throw error;
      return undefined;
    }
  }

  async #endOf(state: ContainerState | undefined): Promise<TaskEnd> {
    await this.#signalByEngine("rm", "--force"); // The next start of this worker removes the rest. After a reboot the engine reports it as never started.
    if (state?.exitCode === undefined || state.status === "created") return {};
    const signal = signalFromExitStatus(state.exitCode);
    // Some engines do not report it: a SIGKILL that this worker did not send is the memory bound's.
    const isSurprise = signal === "SIGKILL" && !this.#killed && this.#options.memoryLimitBytes > 0;
    const isNoted = existsSync(join(this.#options.directory, "oom")) && signal === "SIGKILL";
    const outOfMemory = state.outOfMemory || isNoted || isSurprise;
    return signal ? { signal, outOfMemory } : { exitCode: state.exitCode, outOfMemory };
  }

  /**
   * The number of signalled processes: none where the engine refuses, as for an ended container.
   */
  #signalByEngine(...args: readonly string[]): Promise<number> {
    const { cli, name } = this.#options;
    return cli.run([...args, name], { timeoutMs: CALL_TIMEOUT_MS }).then(
      () => 1,
      () => 0,
    );
  }
}

function isThere({ pid, startTime }: ProcessRecord): boolean {
  return readProcess(pid)?.startTime === startTime;
}
