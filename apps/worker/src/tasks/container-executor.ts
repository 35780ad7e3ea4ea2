import { execFile, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { constants } from "node:os";
import { promisify } from "node:util";
import { maxProcesses } from "./cgroup.ts";
import {
  type Executor,
  LaunchError,
  type TaskEnd,
  type TaskHandle,
  type TaskLaunch,
  type TaskUsage,
} from "./executor.ts";
import { catches, readProcess } from "./process-tree.ts";
import { INHERITED } from "./task-environment.ts";
import { keyOf, type TaskPlan } from "./task-plan.ts";

const CLIS = ["podman", "docker", "nerdctl"] as const;
const probeTimeoutMs = 5_000;
const commandTimeoutMs = 60_000;
const pullTimeoutMs = 30 * 60_000;
const pollMs = 250;
const nodeLabel = "heddle.node";

const run = promisify(execFile);

/**
 * Runs tasks in containers, through whichever of podman, docker and nerdctl works here. A client of
 * the container, in a session of its own, carries the streams to the task's files, so that they
 * flow on while this worker is restarted.
 */
export class ContainerExecutor implements Executor {
  readonly name = "container";
  readonly cli: string;
  readonly #nodeId: string;

  private constructor(cli: string, nodeId: string) {
    this.cli = cli;
    this.#nodeId = nodeId;
  }

  /** Undefined where no container CLI is installed, or none reaches its engine. */
  static async find(nodeId: string): Promise<ContainerExecutor | undefined> {
    for (const cli of CLIS) {
      const works = await run(cli, ["info"], { timeout: probeTimeoutMs }).then(
        () => true,
        () => false,
      );
      if (works) return new ContainerExecutor(cli, nodeId);
    }
    return undefined;
  }

  async prepare({ spec }: TaskPlan, signal: AbortSignal): Promise<void> {
    const { containerImage: image } = spec;
    const isHere = await this.#run(["image", "inspect", image]).then(
      () => true,
      () => false,
    );
    if (isHere) return;
    try {
      await run(this.cli, ["pull", "--quiet", image], { timeout: pullTimeoutMs, signal });
    } catch (error) {
      const message = `${this.cli} could not pull the image ${image}: ${lastLine(error)}. Check its name and that this worker may read its registry`;
      throw new LaunchError("ImagePull", message, error);
    }
  }

  async start(launch: TaskLaunch): Promise<TaskHandle> {
    const name = containerName(this.#nodeId, launch.plan);
    await this.#run(["rm", "--force", name]).catch(() => {}); // Of a start that was cut short.
    try {
      await run(this.cli, this.#createArguments(launch, name), {
        env: { ...process.env, ...launch.environment, PATH: process.env["PATH"] },
        timeout: commandTimeoutMs,
      });
    } catch (error) {
      const message = `${this.cli} could not create the container: ${lastLine(error)}`;
      throw new LaunchError("LaunchFailed", message, error);
    }
    const client = await this.#attach(launch, name);
    return new ContainerTask(this.cli, { name, ...client });
  }

  async adopt(_launch: TaskLaunch, record: unknown): Promise<TaskHandle | undefined> {
    return new ContainerTask(this.cli, record as ContainerRecord, true);
  }

  async sweep(known: ReadonlySet<string>): Promise<number> {
    const filter = ["--filter", `label=${nodeLabel}=${this.#nodeId}`, "--format", "{{.Names}}"];
    const { stdout } = await this.#run(["ps", "--all", ...filter]);
    const kept = new Set([...known].map((key) => nameOf(this.#nodeId, key)));
    const strays = stdout.split("\n").filter((name) => name !== "" && !kept.has(name));
    for (const name of strays) await this.#run(["rm", "--force", name]);
    return strays.length;
  }

  #createArguments(launch: TaskLaunch, name: string): string[] {
    const { plan, workingDirectory, environment, mounts } = launch;
    const { memoryBytes, cpuMilli, command, containerImage } = plan.spec;
    const [program, ...args] = command;
    return [
      ...["create", "--name", name, "--label", `${nodeLabel}=${this.#nodeId}`],
      // The tasks of a gang find each other by the addresses of their nodes.
      ...["--network", "host", "--pids-limit", String(maxProcesses)],
      ...(memoryBytes > 0 ? ["--memory", `${memoryBytes}b`] : []),
      ...(cpuMilli > 0 ? ["--cpus", String(cpuMilli / 1_000)] : []),
      ...this.#gpuArguments(plan, environment),
      ...mounts.flatMap((path) => ["--volume", `${path}:${path}`]),
      ...(plan.spec.workingDirectory === "" ? [] : ["--workdir", workingDirectory]),
      ...environmentArguments(plan, environment),
      ...(program === undefined ? [] : ["--entrypoint", program]),
      ...[containerImage, ...args],
    ];
  }

  #gpuArguments(plan: TaskPlan, environment: Readonly<Record<string, string>>): string[] {
    if (plan.devices.length === 0 || environment["HEDDLE_GPUS_SIMULATED"]) return [];
    // Podman takes devices by the Container Device Interface, the others by NVIDIA's own flag.
    if (this.cli === "podman") {
      return plan.devices.flatMap((index) => ["--device", `nvidia.com/gpu=${index}`]);
    }
    return ["--gpus", `"device=${plan.devices.join(",")}"`];
  }

  async #attach(launch: TaskLaunch, name: string): Promise<Omit<ContainerRecord, "name">> {
    const out = openSync(launch.stdout, "a", 0o600);
    const err = openSync(launch.stderr, "a", 0o600);
    const client = spawn(this.cli, ["start", "--attach", name], {
      detached: true,
      stdio: ["ignore", out, err],
    });
    closeSync(out);
    closeSync(err);
    await once(client, "spawn");
    client.unref();
    const pid = client.pid as number;
    return { pid, startTime: readProcess(pid)?.startTime ?? 0 };
  }

  #run(args: readonly string[]): Promise<{ stdout: string }> {
    return run(this.cli, [...args], { timeout: commandTimeoutMs });
  }
}

/** A container, and the client that carries its streams. */
interface ContainerRecord {
  readonly name: string;
  readonly pid: number;
  readonly startTime: number;
}

class ContainerTask implements TaskHandle {
  readonly record: ContainerRecord;
  readonly exited: Promise<TaskEnd>;
  readonly #cli: string;
  #killed = false;
  #isHeld: boolean;
  /** Pauses and their ends follow each other. */
  #holding: Promise<unknown> = Promise.resolve();

  /** `mayBeHeld`: an earlier process of this worker may have paused it. */
  constructor(cli: string, record: ContainerRecord, mayBeHeld = false) {
    this.#isHeld = mayBeHeld;
    this.#cli = cli;
    this.record = record;
    this.exited = this.#exited();
  }

  async signal(name: NodeJS.Signals, onlyCaught = false): Promise<number> {
    const pid = Number(await this.#inspect("{{.State.Pid}}").catch(() => "0"));
    if (pid === 0 || (onlyCaught && !catches(pid, constants.signals[name]))) return 0;
    return this.#run(["kill", "--signal", name, this.record.name]).then(
      () => 1,
      () => 0,
    );
  }

  async hold(isHeld: boolean): Promise<void> {
    if (isHeld === this.#isHeld) return;
    this.#isHeld = isHeld;
    const args = [isHeld ? "pause" : "unpause", this.record.name];
    // It may have ended by itself.
    this.#holding = this.#holding.then(() => this.#run(args)).catch(() => {});
    await this.#holding;
  }

  async kill(): Promise<void> {
    this.#killed = true;
    await this.hold(false);
    await this.#run(["kill", this.record.name]).catch(() => {}); // It may have ended by itself.
  }

  killNow(): void {
    this.#killed = true;
    const options = { timeout: probeTimeoutMs, stdio: "ignore" as const };
    if (this.#isHeld) spawnSync(this.#cli, ["unpause", this.record.name], options);
    spawnSync(this.#cli, ["kill", this.record.name], options);
  }

  /** Its bound on memory is the engine's to hold. */
  async usage(): Promise<TaskUsage> {
    return { memoryBytes: 0, processes: 0 };
  }

  async #exited(): Promise<TaskEnd> {
    const { pid, startTime, name } = this.record;
    for (;;) {
      while (readProcess(pid)?.startTime === startTime && startTime > 0) await pause();
      const state = await this.#inspect("{{.State.Status}}").catch(() => "gone");
      if (state !== "running" && state !== "created" && state !== "paused") break;
      await pause(); // The client went first.
    }
    const end = await this.#inspect("{{.State.ExitCode}} {{.State.OOMKilled}}").catch(() => "");
    await this.#run(["rm", "--force", name]).catch(() => {}); // The next sweep finds what stays.
    const [, code, oom] = /^(\d+) (\w+)$/.exec(end.trim()) ?? [];
    if (code === undefined) return {};
    // Not every engine tells: a SIGKILL that nobody here sent is that of the bound on memory.
    const outOfMemory = oom === "true" || (Number(code) === 137 && !this.#killed);
    return Number(code) === 137
      ? { signal: "SIGKILL", outOfMemory }
      : { exitCode: Number(code), outOfMemory };
  }

  async #inspect(format: string): Promise<string> {
    const { stdout } = await this.#run(["inspect", "--format", format, this.record.name]);
    return stdout.trim();
  }

  #run(args: readonly string[]): Promise<{ stdout: string }> {
    return run(this.#cli, [...args], { timeout: commandTimeoutMs });
  }
}

/**
 * The job's variables, by name, so that their values stand in no command line; those that the CLI
 * itself reads are given with their value instead.
 */
function environmentArguments(
  plan: TaskPlan,
  environment: Readonly<Record<string, string>>,
): string[] {
  return Object.keys(environment)
    .filter((name) => !INHERITED.includes(name) || name in plan.spec.environment)
    .flatMap((name) => {
      const isOfCli = INHERITED.includes(name) || /^(DOCKER|CONTAINER|LD|XDG)/.test(name);
      return ["--env", isOfCli ? `${name}=${environment[name]}` : name];
    });
}

function containerName(nodeId: string, { id }: TaskPlan): string {
  return nameOf(nodeId, keyOf(id));
}

function nameOf(nodeId: string, key: string): string {
  return `heddle-${nodeId.slice(0, 8)}-${key.replaceAll("/", "-")}`;
}

function lastLine(error: unknown): string {
  const { stderr, message } = error as { stderr?: string; message?: string };
  return (stderr?.trim().split("\n").at(-1) || message) ?? String(error);
}

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, pollMs));
}
