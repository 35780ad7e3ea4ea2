import { execFile } from "node:child_process";
import { toAppError } from "@heddle/base/errors";
import { removeStaleSockets } from "@heddle/base/temporary-socket";
import type { PluginEntry } from "@heddle/contracts/trainer/plugin-entry";
import type { PluginNames } from "@heddle/contracts/trainer/plugin-names";
import { trainingFaults } from "@heddle/contracts/training-faults";
import { ENVIRONMENTS } from "@heddle/training/environments/environments";
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
import { configOf, hasGpu, trainerOrders } from "./trainer-orders.ts";
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
    if (!hasGpu(plan, this.#node)) {
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
      const orders = trainerOrders(launch, this.#node, this.#plugins);
      const input = JSON.stringify({ ...orders, socketDirectory: sockets });
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
}

/** The key under which an attempt's tasks on this node find each other. */
function attemptOf({ plan }: TaskLaunch): string {
  return `${plan.id.jobId}/${plan.id.attempt}`;
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
