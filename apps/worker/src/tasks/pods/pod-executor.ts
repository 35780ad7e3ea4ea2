import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Log } from "@heddle/observability/logger";
import { keyOf, type TaskPlan } from "../../records/task-plan.ts";
import {
  type Executor,
  LaunchError,
  type TaskHandle,
  type TaskLaunch,
} from "../executors/executor.ts";
import { RunnerControl } from "../runners/runner-control.ts";
import { installRunner, type RunnerFiles, removeOlderRunners } from "../runners/runner-files.ts";
import { runnerProgram } from "../runners/runner-program.ts";
import { RunnerTask } from "../runners/runner-task.ts";
import { KubernetesError } from "./kubernetes-api.ts";
import type { Pod } from "./kubernetes-types.ts";
import { podEnd } from "./pod-end.ts";
import { launchFault } from "./pod-faults.ts";
import { OWNER_LABEL, type PodParts, podManifest } from "./pod-manifest.ts";
import type { PodPlace } from "./pod-place.ts";
import { PodStates } from "./pod-states.ts";

const POLL_MS = 100;
/** For the image and a place on the node. */
const PREPARE_TIMEOUT_MS = 30 * 60_000;
const START_TIMEOUT_MS = 90_000;
/** For the end of an earlier Pod of the same name. */
const REPLACE_TIMEOUT_MS = 60_000;
/** Where the tasks of a gang meet, in Pods with an address of their own. */
const RENDEZVOUS_PORT = 29_500;

const DELETED = "its Pod was deleted or evicted, as by `kubectl delete`, a drain or a full node";

/** Runs tasks as Pods on the worker's own node. */
export class PodExecutor implements Executor {
  readonly name = "container";
  readonly outlivesWorker = true;
  readonly leaseFolder: string;
  readonly #place: PodPlace;
  readonly #nodeId: string;
  readonly #states: PodStates;
  readonly #runner: RunnerFiles;

  private constructor(
    place: PodPlace,
    nodeId: string,
    states: PodStates,
    files: { readonly folder: string; readonly runner: RunnerFiles },
  ) {
    this.#place = place;
    this.#nodeId = nodeId;
    this.#states = states;
    this.#runner = files.runner;
    this.leaseFolder = join(files.folder, "lease");
  }

  /** Keeps its own files in the data directory. Rejects where the API server refuses it. */
  static async find(
    place: PodPlace,
    nodeId: string,
    dataDirectory: string,
    log: Log,
  ): Promise<PodExecutor> {
    const folder = join(dataDirectory, "pods");
    place.shared(folder);
    const runner = await installRunner(folder);
    const states = new PodStates(place.api, `${OWNER_LABEL}=${nodeId}`, log);
    await states.start();
    if (states.names.length === 0) await removeOlderRunners(runner);
    const { nodeName, offer, settings } = place;
    const gpus = offer.gpus?.length ?? 0;
    log.info({ node: nodeName, gpus, by: settings.gpus }, "tasks run as Pods");
    return new PodExecutor(place, nodeId, states, { folder, runner });
  }

  get labels(): Readonly<Record<string, string>> {
    return this.#place.labels;
  }

  /** Known before the Pod is: the name that its hostname has in the Service. */
  taskAddress({ spec, id }: TaskPlan) {
    const { settings, api, hostAddress } = this.#place;
    if (spec.hostNetwork) return { host: hostAddress };
    const service = `${settings.service}.${api.namespace}.svc.${settings.clusterDomain}`;
    return { host: `${podName(id)}.${service}`, port: RENDEZVOUS_PORT };
  }

  /** Makes the Pod and waits for its runner, which then waits for the start. */
  async prepare(launch: TaskLaunch, signal: AbortSignal): Promise<void> {
    const { plan } = launch;
    const unusable = unusableFault(plan);
    if (unusable !== undefined) throw new LaunchError("Unsatisfiable", unusable);
    const control = controlOf(launch);
    const name = podName(plan.id);
    await this.#removeEarlier(name, signal);
    await control.create();
    await control.give(
      runnerProgram(launch, { control, leaseFolder: this.leaseFolder, isInImage: true }),
    );
    await writeFile(launch.environment["HEDDLE_PROGRESS_FILE"] ?? "", "", {
      flag: "a",
      mode: 0o600,
    });
    await this.#create(launch, name, control.folder);
    await this.#until("ready", name, control, PREPARE_TIMEOUT_MS, signal);
  }

  async start(launch: TaskLaunch): Promise<TaskHandle> {
    const name = podName(launch.plan.id);
    const control = controlOf(launch);
    await control.order({ kind: "start" });
    await this.#until("started", name, control, START_TIMEOUT_MS);
    return this.#taskOf(launch, control);
  }

  async abandon({ id }: TaskPlan): Promise<void> {
    await this.#remove(podName(id), 1).catch(() => undefined); // The next sweep finds it.
  }

  async adopt(launch: TaskLaunch): Promise<TaskHandle | undefined> {
    // The name is derived from the task, so that no record can name another's Pod.
    return this.#taskOf(launch, controlOf(launch));
  }

  async sweep(known: ReadonlySet<string>): Promise<number> {
    const kept = new Set([...known].map(podNameOfKey));
    const strays = this.#states.names.filter((name) => !kept.has(name));
    for (const name of strays) await this.#remove(name, 1);
    return strays.length;
  }

  #taskOf({ plan }: TaskLaunch, control: RunnerControl): RunnerTask {
    const name = podName(plan.id);
    return new RunnerTask(
      { pod: name },
      {
        control,
        memoryLimitBytes: plan.spec.memoryBytes,
        lostMessage: DELETED,
        place: () => podEnd(this.#states.get(name)),
        remove: (graceSeconds) => this.#remove(name, graceSeconds),
      },
    );
  }

  async #create(launch: TaskLaunch, name: string, controlFolder: string): Promise<void> {
    const { api } = this.#place;
    const manifest = manifestOf(launch, {
      name,
      nodeId: this.#nodeId,
      place: this.#place,
      runner: this.#runner,
      leaseFolder: this.leaseFolder,
      controlFolder,
    });
    try {
      this.#states.made(await api.create<Pod>(api.path("pods"), manifest));
    } catch (error) {
      const { message } = error as Error;
      const words = `Kubernetes did not take the task's Pod: ${message}`;
      // A wrong spec stays wrong; other errors may pass.
      const isWrong = error instanceof KubernetesError && [400, 422].includes(error.status);
      throw new LaunchError(isWrong ? "Unsatisfiable" : "LaunchFailed", words, error);
    }
  }

  /** Left by an interrupted start, or by the cluster before a restore. */
  async #removeEarlier(name: string, signal: AbortSignal): Promise<void> {
    const path = this.#place.api.path("pods", name);
    const untilMs = performance.now() + REPLACE_TIMEOUT_MS;
    while (this.#states.get(name) && (await this.#place.api.remove(path, 1))) {
      signal.throwIfAborted();
      if (performance.now() > untilMs) {
        throw new LaunchError("LaunchFailed", `an earlier Pod ${name} does not end on its node`);
      }
      await delay(POLL_MS * 5);
    }
  }

  async #remove(name: string, graceSeconds: number): Promise<void> {
    await this.#place.api.remove(this.#place.api.path("pods", name), graceSeconds);
  }

  /** Rejects with a LaunchError where the runner or Kubernetes says that it will not come. */
  async #until(
    kind: "ready" | "started",
    name: string,
    control: RunnerControl,
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<void> {
    const sinceMs = performance.now();
    for (;;) {
      signal?.throwIfAborted();
      for (const event of await control.events()) {
        if (event.kind === kind) return;
        if (event.kind === "failed") throw new LaunchError("LaunchFailed", event.message);
        if (event.kind === "end") {
          throw new LaunchError("LaunchFailed", `the Pod ${name} was ended before it began`);
        }
      }
      const waitedMs = performance.now() - sinceMs;
      const fault = launchFault(this.#states.get(name), waitedMs);
      if (fault) throw new LaunchError(fault.reason, `the Pod ${name}: ${fault.message}`);
      if (waitedMs > timeoutMs) {
        const message = `the Pod ${name} did not begin within ${timeoutMs / 1_000} s`;
        throw new LaunchError("LaunchFailed", message);
      }
      await delay(POLL_MS);
    }
  }
}

function manifestOf(launch: TaskLaunch, parts: PodParts): Pod {
  try {
    return podManifest(launch, parts);
  } catch (error) {
    throw new LaunchError("LaunchFailed", (error as Error).message, error);
  }
}

function controlOf({ root, directory }: TaskLaunch): RunnerControl {
  return new RunnerControl(root, directory);
}

/** The name says which task it is, so that no task has two Pods. */
function podName(id: TaskPlan["id"]): string {
  return podNameOfKey(keyOf(id));
}

function podNameOfKey(key: string): string {
  return `heddle-${key.replace(/^job_/, "").replaceAll("/", "-").replaceAll("_", "-").toLowerCase()}`;
}

/** Why no Pod can run it, if so. */
function unusableFault({ spec, gpuMilli }: TaskPlan): string | undefined {
  if (spec.command.length === 0) {
    return "a Pod needs a `command`: Kubernetes does not say what an image's entry point is";
  }
  if (gpuMilli % 1_000 !== 0 && gpuMilli > 0) {
    return "a Pod gets whole devices of its node's device plugin: ask for whole GPUs, or have the plugin share them";
  }
  return undefined;
}
