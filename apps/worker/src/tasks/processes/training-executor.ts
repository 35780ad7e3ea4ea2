import { execFile } from "node:child_process";
import { availableParallelism } from "node:os";
import { toAppError } from "@heddle/base/errors";
import { removeStaleSockets } from "@heddle/base/temporary-socket";
import type { TrainerOrders } from "@heddle/contracts/trainer/orders";
import type { PluginEntry } from "@heddle/contracts/trainer/plugin-entry";
import type { PluginNames } from "@heddle/contracts/trainer/plugin-names";
import { trainingFaults } from "@heddle/contracts/training-faults";
import { ENVIRONMENTS } from "@heddle/training/environments/environments";
import type { TaskPlan } from "../../records/task-plan.ts";
import {
  type Executor,
  LaunchError,
  type TaskHandle,
  type TaskLaunch,
} from "../executors/executor.ts";
import { inOwnTurn } from "../executors/own-turn.ts";
import type { TaskNode } from "../task-node.ts";
import { describePlugins, NO_PLUGINS } from "./describe-plugins.ts";
import type { ProcessExecutor } from "./process-executor.ts";
import { SocketFolders } from "./socket-folders.ts";
import { asTrainer, trainerProgram } from "./trainer-program.ts";

interface TrainingSettings {
  /** For trainers to load. */
  readonly plugins: readonly PluginEntry[];
  /** Where the folders of the tasks' sockets may lie. */
  readonly socketRoots: readonly string[];
}

/** The time limit of a device's check. */
const CHECK_MS = 120_000;
const CPU_ADVICE = "give `config.device` auto, which takes the CPU there and says so";

/**
 * Runs tasks of training jobs: each as a process of the trainer, which is bounded, killed and
 * adopted as any other task's process.
 */
export class TrainingExecutor implements Executor {
  readonly name = "training";
  readonly algorithms: readonly string[];
  readonly environments: readonly string[];
  readonly schemas: Readonly<Record<string, string>>;
  readonly #processes: ProcessExecutor;
  readonly #node: TaskNode;
  readonly #plugins: readonly PluginEntry[];
  readonly #sockets: SocketFolders;

  private constructor(
    processes: ProcessExecutor,
    node: TaskNode,
    { plugins, socketRoots }: TrainingSettings,
    { algorithms, environments, schemas }: PluginNames,
  ) {
    this.#processes = processes;
    this.#node = node;
    this.#plugins = plugins;
    this.#sockets = new SocketFolders(node.id, socketRoots);
    this.algorithms = ["ppo", "weave", ...algorithms];
    this.environments = [...ENVIRONMENTS.keys(), ...environments];
    this.schemas = schemas;
  }

  /** Undefined where ONNX Runtime does not load, which is logged. */
  static async find(
    processes: ProcessExecutor,
    node: TaskNode,
    settings: TrainingSettings,
  ): Promise<TrainingExecutor | undefined> {
    const { log } = node;
    const { plugins } = settings;
    const fault = await deviceFault(["cpu"], process.env);
    if (fault) {
      log.warn({ error: fault.message }, "no training here: ONNX Runtime does not load");
      return undefined;
    }
    try {
      const added = await describePlugins(plugins);
      if (plugins.length > 0) log.info({ ...added }, "training plugins");
      return new TrainingExecutor(processes, node, settings, added);
    } catch (error) {
      // One faulty plugin must not disable the node's other abilities.
      log.error({ error: toAppError(error).message }, "no training plugins here");
      return new TrainingExecutor(processes, node, { ...settings, plugins: [] }, NO_PLUGINS);
    }
  }

  async prepare({ plan }: TaskLaunch): Promise<void> {
    const { algorithm, tasks } = plan.spec;
    const config = configOf(plan);
    const [wrong] = trainingFaults(algorithm, config, tasks);
    if (wrong) throw new LaunchError("Unsatisfiable", wrong.detail);
    if (config["device"] !== "cuda") return;
    if (!this.#hasGpu(plan)) {
      const advice =
        plan.devices.length === 0
          ? "ask for one with `resources.gpu_count`"
          : `what it was given is simulated: have workers with GPUs, or ${CPU_ADVICE}`;
      const message = `\`config.device\` is cuda and the task holds no real GPU: ${advice}`;
      throw new LaunchError("Unsatisfiable", message);
    }
    const devices = { CUDA_DEVICE_ORDER: "PCI_BUS_ID", CUDA_VISIBLE_DEVICES: plan.devices.join() };
    const asked = ["cuda", String(config["backend"] ?? "onnx")];
    const fault = await deviceFault(asked, { ...process.env, ...devices });
    if (!fault) return;
    const message = `\`config.device\` is cuda and this worker cannot compute on it: ${fault.message}`;
    if (fault.isPassing) throw new LaunchError("LaunchFailed", message);
    throw new LaunchError("Unsatisfiable", `${message}; install what is missing, or ${CPU_ADVICE}`);
  }

  async start(launch: TaskLaunch): Promise<TaskHandle> {
    if (launch.ticket === "") {
      const message =
        "the leading master gave no ticket for the parameter servers: start masters of this version first";
      throw new LaunchError("LaunchFailed", message);
    }
    const command = [process.execPath, trainerProgram("main")];
    const attempt = attemptOf(launch);
    const sockets = this.#sockets.acquire(attempt);
    const release = () => this.#sockets.release(attempt);
    try {
      const input = JSON.stringify({ ...this.#orders(launch), socketDirectory: sockets });
      const mounts = [...launch.mounts, { path: sockets, isReadOnly: false }];
      const handle = await this.#processes.startProgram({ ...launch, mounts }, { command, input });
      return this.#followed(handle, launch, { sockets, release });
    } catch (error) {
      release();
      throw error;
    }
  }

  async adopt(launch: TaskLaunch, record: unknown): Promise<TaskHandle | undefined> {
    const attempt = attemptOf(launch);
    const sockets = String((record as { sockets?: unknown } | null)?.sockets ?? "");
    const isAdopted = this.#sockets.adopt(attempt, sockets);
    const handle = await this.#processes.adopt(launch, record);
    const release = () => isAdopted && this.#sockets.release(attempt);
    if (!handle) release();
    return handle && this.#followed(handle, launch, { sockets, release });
  }

  /** One that was killed could not remove its sockets. */
  #followed(
    handle: TaskHandle,
    launch: TaskLaunch,
    { sockets, release }: { readonly sockets: string; release(): unknown },
  ): TaskHandle {
    const onEnd = () => {
      release();
      void removeStaleSockets();
    };
    void handle.exited.then(onEnd, onEnd);
    const trainer = asTrainer(handle, launch.plan.spec.failureTolerance > 0);
    return { ...trainer, record: { ...(handle.record as object), sockets } };
  }

  /** The executor of processes sweeps them by their marks; only their sockets are left. */
  async sweep(): Promise<number> {
    this.#sockets.sweep();
    await removeStaleSockets();
    return 0;
  }

  #orders({ plan, environment, ...places }: TaskLaunch): Omit<TrainerOrders, "socketDirectory"> {
    const { id, spec } = plan;
    const { parameterServers, readyServers, jobToken, ticket, nodes } = places;
    const { credentials, host, version } = this.#node;
    const path = (name: string) => {
      const found = environment[name];
      if (found !== undefined) return found;
      throw new Error(`a task's environment has no ${name}`);
    };
    return {
      jobId: id.jobId,
      attempt: id.attempt,
      rank: id.rank,
      tasks: spec.tasks,
      jobName: spec.jobName,
      algorithm: spec.algorithm,
      config: configOf(plan),
      parameterServers,
      readyServers,
      host,
      release: version,
      plugins: this.#plugins,
      failureTolerance: spec.failureTolerance,
      incarnation: id.incarnation,
      // A task that others use as their leader could not be lost alone.
      nodes: spec.failureTolerance > 0 ? [] : nodes,
      jobToken: Buffer.from(jobToken).toString("hex"),
      ticket,
      authority: credentials.tls?.material.authority,
      resumeFrom: spec.resumeFrom,
      keepCheckpoints: spec.keepCheckpoints,
      threads: Math.max(1, Math.min(availableParallelism(), Math.floor(spec.cpuMilli / 1_000))),
      hasGpu: this.#hasGpu(plan),
      checkpointDirectory: path("HEDDLE_CHECKPOINT_DIR"),
      artifactDirectory: path("HEDDLE_ARTIFACT_DIR"),
      progressFile: path("HEDDLE_PROGRESS_FILE"),
    };
  }

  #hasGpu({ devices }: TaskPlan): boolean {
    const real = this.#node.gpus().filter(({ simulated }) => !simulated);
    const indexes = new Set(real.map(({ index }) => index));
    return devices.length > 0 && devices.every((index) => indexes.has(index));
  }
}

/** Its tasks on this node meet. */
function attemptOf({ plan }: TaskLaunch): string {
  return `${plan.id.jobId}/${plan.id.attempt}`;
}

/** The config as JSON; submission has refused invalid JSON. */
function configOf({ spec }: TaskPlan): Readonly<Record<string, unknown>> {
  return JSON.parse(spec.config || "{}") as Readonly<Record<string, unknown>>;
}

interface DeviceFault {
  readonly message: string;
  /**
   * True where a later attempt may succeed: the check took too long, or the device's memory is
   * full.
   */
  readonly isPassing: boolean;
}

const MEMORY = /out of memory|failed to allocate/i;

/**
 * Why a backend cannot compute on a device; undefined where it can. The check runs in its own
 * process.
 */
function deviceFault(
  asked: readonly string[],
  environment: NodeJS.ProcessEnv,
): Promise<DeviceFault | undefined> {
  const args = [trainerProgram("run/check-device-main"), ...asked];
  const options = { timeout: CHECK_MS, env: environment };
  const check = () =>
    new Promise<DeviceFault | undefined>((resolve) => {
      execFile(process.execPath, args, options, (error, _stdout, stderr) => {
        if (!error) return resolve(undefined);
        const isLate = error.killed === true;
        const why = isLate ? `it did not respond within ${CHECK_MS / 1_000} s` : error.message;
        const message = stderr.trim().split("\n").at(-1) || why;
        resolve({ message, isPassing: isLate || MEMORY.test(stderr) });
      });
    });
  return inOwnTurn(check);
}
