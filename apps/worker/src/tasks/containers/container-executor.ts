import { chmod, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Log } from "@heddle/observability/logger";
import { keyOf, type TaskPlan } from "../../records/task-plan.ts";
import {
  type Executor,
  LaunchError,
  type TaskHandle,
  type TaskLaunch,
} from "../executors/executor.ts";
import { OutputCopier } from "../executors/output-copier.ts";
import { freshScan } from "../executors/process-scan.ts";
import { MARK_VARIABLE, type ProcessRecord, signalProcess } from "../executors/process-tree.ts";
import { INHERITED } from "../executors/task-environment.ts";
import { CliError, type ContainerCli } from "./container-cli.ts";
import {
  CONFINED,
  type ContainerEngine,
  findContainerEngine,
  ownLimits,
} from "./container-engine.ts";
import { attachClient, startByItself, startWithClient } from "./container-start.ts";
import { ContainerTask } from "./container-task.ts";

const COMMAND_TIMEOUT_MS = 60_000;
const PULL_TIMEOUT_MS = 30 * 60_000;
/** Processes and threads of one container. */
const MAX_CONTAINER_PROCESSES = 4_096;
const NODE_LABEL = "heddle.node";
/** The longest line of a file of variables that every CLI accepts. */
const MAX_FILE_LINE = 32_000;

/** Runs tasks in containers, through the first of podman, docker and nerdctl that works. */
export class ContainerExecutor implements Executor {
  readonly name = "container";
  readonly #cli: ContainerCli;
  /** Whether containers write to the task's pipes directly, or a client carries their output. */
  readonly #writesItself: boolean;
  readonly #hasNetwork: boolean;
  readonly #nodeId: string;
  readonly #log: Log;
  #trouble = "";

  private constructor(engine: ContainerEngine, nodeId: string, log: Log) {
    this.#cli = engine.cli;
    this.#writesItself = engine.writesItself;
    this.#hasNetwork = engine.networkFault === undefined;
    this.#nodeId = nodeId;
    this.#log = log;
  }

  /** The name of the CLI. */
  get cli(): string {
    return this.#cli.name;
  }

  /**
   * Undefined where no container CLI is installed, or none can run a container, which is logged.
   */
  static async find(nodeId: string, log: Log): Promise<ContainerExecutor | undefined> {
    const engine = await findContainerEngine(log);
    if (engine?.networkFault !== undefined) {
      const advice =
        "only jobs with `container_options.network: host` have one: install iptables, and netavark or the CNI plugins, and restart the worker";
      const { networkFault: error } = engine;
      log.warn({ cli: engine.cli.name, error, advice }, "containers have no network here");
    }
    return engine && new ContainerExecutor(engine, nodeId, log);
  }

  async prepare({ plan }: TaskLaunch, signal: AbortSignal): Promise<void> {
    const { containerImage: image } = plan.spec;
    const isHere = await this.#run("image", "inspect", "--format", "{{.Id}}", image).then(
      () => true,
      () => false,
    );
    if (isHere) return;
    try {
      await this.#cli.pull(image, { timeoutMs: PULL_TIMEOUT_MS, signal });
    } catch (error) {
      const message = `${this.#cli.name} could not pull the image ${image}: ${errorText(error)}. Check its name and that this worker may read its registry`;
      throw new LaunchError("ImagePull", message, error);
    }
  }

  async start(launch: TaskLaunch): Promise<TaskHandle> {
    const name = this.#nameOf(keyOf(launch.plan.id));
    try {
      await this.#openFiles(launch);
      await this.#create(launch, name);
      const how = { cli: this.#cli, name, launch, environment: this.#markOf(launch) };
      if (this.#writesItself) {
        return this.#taskOf(launch, undefined, await startByItself(how, this.#markFor(launch)));
      }
      return this.#taskOf(launch, await startWithClient(how), undefined);
    } catch (error) {
      await this.#clear(launch, name);
      if (error instanceof LaunchError) throw error;
      const message = `${this.#cli.name} could not start a container of ${launch.plan.spec.containerImage}: ${errorText(error)}`;
      throw new LaunchError("LaunchFailed", message, error);
    }
  }

  async adopt(launch: TaskLaunch, record: unknown): Promise<TaskHandle | undefined> {
    // The name is derived from the task, so that no record can name another's container.
    const { client } = (record ?? {}) as { readonly client?: Partial<ProcessRecord> };
    const { pid = 0, startTime = 0 } = client ?? {};
    const copier = OutputCopier.find(launch, this.#markFor(launch));
    return this.#taskOf(launch, client && { pid, startTime }, copier);
  }

  async sweep(known: ReadonlySet<string>): Promise<number> {
    const kept = new Set([...known].map((key) => this.#nameOf(key)));
    try {
      return await removeContainers(this.#cli, this.#nodeId, kept);
    } catch (error) {
      // Their processes carry marks and are ended by these; only files of the engine are left.
      this.#log.warn(
        { error: errorText(error) },
        "containers of an earlier process could not be removed",
      );
      return 0;
    }
  }

  #taskOf(
    launch: TaskLaunch,
    client: ProcessRecord | undefined,
    copier: OutputCopier | undefined,
  ): ContainerTask {
    const [cli, name] = [this.#cli, this.#nameOf(keyOf(launch.plan.id))];
    return new ContainerTask({
      cli,
      name,
      mark: this.#markFor(launch),
      copier,
      directory: launch.directory,
      memoryLimitBytes: launch.plan.spec.memoryBytes,
      client: client && {
        record: client,
        renew: () => attachClient(cli, ["attach", "--no-stdin", "--sig-proxy=false", name], launch),
      },
      onTrouble: (error) => {
        if (error === this.#trouble) return;
        this.#trouble = error;
        this.#log.warn({ container: name, error }, "the container engine is in trouble");
      },
    });
  }

  async #create(launch: TaskLaunch, name: string): Promise<void> {
    const file = join(launch.directory, "container.env");
    const { inFile, asArguments } = this.#variables(launch);
    await writeFile(file, inFile, { mode: 0o600 });
    const args = this.#createArguments(launch, ["--env-file", file, ...asArguments]);
    const create = () =>
      this.#cli.run(["create", "--name", name, ...args], {
        timeoutMs: COMMAND_TIMEOUT_MS,
        environment: this.#markOf(launch),
      });
    try {
      await create().catch(async (error: unknown) => {
        if (!/already in use/.test(errorText(error))) throw error;
        await this.#run("rm", "--force", name); // Left by an interrupted start.
        await create();
      });
    } finally {
      await rm(file, { force: true });
    }
  }

  #createArguments({ plan, ...launch }: TaskLaunch, environment: readonly string[]): string[] {
    const { memoryBytes, cpuMilli, command, containerImage } = plan.spec;
    const [program, ...args] = command;
    return [
      "--label",
      `${NODE_LABEL}=${this.#nodeId}`,
      ...CONFINED,
      "--pids-limit",
      String(MAX_CONTAINER_PROCESSES),
      ...this.#networkArguments(plan, launch.environment),
      // Programs expect to write there.
      ...(plan.spec.readOnly ? ["--read-only", "--tmpfs", "/tmp"] : []),
      ...(memoryBytes > 0 ? ["--memory", `${memoryBytes}b`] : []),
      ...(plan.spec.shmBytes > 0 ? ["--shm-size", `${plan.spec.shmBytes}b`] : []),
      ...(cpuMilli > 0 ? ["--cpus", String(cpuMilli / 1_000)] : []),
      ...(this.#cli.name === "podman" ? ownLimits() : []),
      ...(this.#writesItself ? ["--log-driver", "passthrough"] : []),
      ...this.#gpuArguments(plan, launch.environment),
      ...launch.mounts.flatMap(({ path, isReadOnly }) => [
        "--volume",
        `${path}:${path}${isReadOnly ? ":ro" : ""}`,
      ]),
      ...(plan.spec.workingDirectory === "" ? [] : ["--workdir", launch.workingDirectory]),
      ...environment,
      ...(program === undefined ? [] : ["--entrypoint", program]),
      containerImage,
      ...args,
    ];
  }

  /** The tasks of a gang reach each other by their rendezvous ports, which their nodes forward. */
  #networkArguments(
    { spec, id }: TaskPlan,
    environment: Readonly<Record<string, string>>,
  ): readonly string[] {
    if (spec.hostNetwork) return ["--network", "host"];
    if (!this.#hasNetwork) return ["--network", "none"];
    const own = environment["HEDDLE_PEERS"]?.split(",")[id.rank] ?? "";
    const port = own.slice(own.lastIndexOf(":") + 1);
    return spec.tasks > 1 && port !== "" ? ["--publish", `${port}:${port}`] : [];
  }

  #gpuArguments(plan: TaskPlan, environment: Readonly<Record<string, string>>): string[] {
    if (plan.devices.length === 0 || environment["HEDDLE_GPUS_SIMULATED"]) return [];
    // Podman takes devices by the Container Device Interface, the others by NVIDIA's own flag.
    if (this.#cli.name === "podman") {
      return plan.devices.flatMap((index) => ["--device", `nvidia.com/gpu=${index}`]);
    }
    return ["--gpus", `"device=${plan.devices.join(",")}"`];
  }

  /**
   * The job's variables. None is set for the CLI itself, which would take its engine, libraries and
   * files from them. Those that a file of lines cannot represent are arguments.
   */
  #variables(launch: TaskLaunch): { inFile: string; asArguments: string[] } {
    const { plan, environment, secretVariables } = launch;
    const named = { ...plan.spec.environment, ...secretVariables };
    const isOwn = (name: string) => !INHERITED.includes(name) || name in named;
    const lines = Object.entries({ ...environment, ...this.#markOf(launch) })
      .filter(([name]) => isOwn(name))
      .map(([name, value]) => `${name}=${value}`);
    const isPlain = (line: string) =>
      line.length < MAX_FILE_LINE &&
      /^\w+=$|^\w+=[^\s"'`#\\$]([^\n\r"'`#\\$]*[^\s"'`#\\$])?$/.test(line);
    return {
      inFile: lines
        .filter(isPlain)
        .map((line) => `${line}\n`)
        .join(""),
      asArguments: lines.filter((line) => !isPlain(line)).flatMap((line) => ["--env", line]),
    };
  }

  /** The task's output files exist, also for an image whose user is not this worker's. */
  async #openFiles({ plan, environment, mounts }: TaskLaunch): Promise<void> {
    const progress = environment["HEDDLE_PROGRESS_FILE"] ?? "";
    await writeFile(progress, "", { flag: "a", mode: 0o600 });
    const of = ["image", "inspect", "--format", "{{.Config.User}}", plan.spec.containerImage];
    const user = await this.#run(...of).catch(() => "");
    if (/^(|0|root)(:.*)?$/.test(user)) return;
    for (const { path, isReadOnly } of mounts) {
      const mode = isReadOnly ? 0o644 : path === progress ? 0o666 : 0o777;
      await chmod(path, mode);
    }
  }

  /** A failed start leaves nothing running, even where the engine does not answer. */
  async #clear(launch: TaskLaunch, name: string): Promise<void> {
    const scan = await freshScan();
    for (const { pid } of scan.processesOf(undefined, this.#markFor(launch)))
      signalProcess(pid, "SIGKILL");
    await this.#run("rm", "--force", name).catch(() => {}); // The next sweep finds it.
  }

  /**
   * The calls of the CLI carry it too: one that outlives this worker is ended like its container.
   */
  #markOf(launch: TaskLaunch): Record<string, string> {
    return { [MARK_VARIABLE]: this.#markFor(launch) };
  }

  #markFor({ plan }: TaskLaunch): string {
    return `${this.#nodeId}/${keyOf(plan.id)}`;
  }

  #nameOf(key: string): string {
    return `heddle-${this.#nodeId.slice(0, 8)}-${key.replaceAll("/", "-")}`;
  }

  #run(...args: string[]): Promise<string> {
    return this.#cli.run(args, { timeoutMs: COMMAND_TIMEOUT_MS });
  }
}

/** Removes the worker's containers except those with the names to keep; returns their number. */
export async function removeContainers(
  cli: ContainerCli,
  nodeId: string,
  kept: ReadonlySet<string>,
): Promise<number> {
  const options = { timeoutMs: COMMAND_TIMEOUT_MS };
  const filter = ["--filter", `label=${NODE_LABEL}=${nodeId}`, "--format", "{{.Names}}"];
  const names = (await cli.run(["ps", "--all", ...filter], options)).split("\n");
  const strays = names.filter((name) => name !== "" && !kept.has(name));
  for (const name of strays) await cli.run(["rm", "--force", name], options);
  return strays.length;
}

function errorText(error: unknown): string {
  if (error instanceof CliError) return error.message;
  return error instanceof Error ? error.message : String(error);
}
