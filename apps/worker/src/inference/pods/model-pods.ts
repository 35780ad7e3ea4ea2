import { randomBytes } from "node:crypto";
import { mkdir, rm } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { AppError } from "@heddle/base/errors";
import {
  type EngineHost,
  engineHostCommand,
  HostedEngine,
} from "@heddle/engines/llama/host/hosted-engine";
import type { EngineLauncher } from "@heddle/engines/llama/parent/engine-link";
import type { Log } from "@heddle/observability/logger";
import { isPodEnded } from "../../tasks/pods/pod-end.ts";
import { launchFault } from "../../tasks/pods/pod-faults.ts";
import type { PodPlace } from "../../tasks/pods/pod-place.ts";
import { PodStates } from "../../tasks/pods/pod-states.ts";
import { MODEL_LABEL, type ModelPodParts, modelPod } from "./model-pod.ts";

const POLL_MS = 200;
/** Bytes of a path that a socket may have on Linux. */
const MAX_SOCKET_PATH = 107;

/** Which engine a Pod is for. */
export type ModelPodWish = Pick<ModelPodParts, "deployment" | "devices" | "weights">;

/** The Pods of a worker's models: one for each engine process, which ends with the worker's end of its socket. */
export class ModelPods {
  readonly #place: PodPlace;
  readonly #nodeId: string;
  readonly #folder: string;
  readonly #states: PodStates;
  readonly #log: Log;
  readonly #live = new Set<string>();

  private constructor(
    place: PodPlace,
    own: { readonly nodeId: string; readonly folder: string; readonly states: PodStates },
    log: Log,
  ) {
    this.#place = place;
    this.#nodeId = own.nodeId;
    this.#folder = own.folder;
    this.#states = own.states;
    this.#log = log;
  }

  /** Removes what an earlier process of the worker has left. Rejects where the API server refuses it. */
  static async find(
    place: PodPlace,
    nodeId: string,
    dataDirectory: string,
    log: Log,
  ): Promise<ModelPods> {
    const folder = join(dataDirectory, "model-pods");
    place.shared(folder);
    await rm(folder, { recursive: true, force: true });
    const states = new PodStates(place.api, `${MODEL_LABEL}=${nodeId}`, log);
    await states.start();
    const pods = new ModelPods(place, { nodeId, folder, states }, log);
    await pods.#sweep(() => true);
    return pods;
  }

  /** Runs an engine in a Pod of its own. */
  launcher(wish: ModelPodWish): EngineLauncher {
    return (listener) => new HostedEngine(this.#open(wish), listener);
  }

  #open(wish: ModelPodWish): EngineHost {
    const name = podName(wish.deployment);
    const folder = join(this.#folder, name.slice(-8));
    const server = createServer();
    const closing = new AbortController();
    this.#live.add(name);
    const connected = this.#connect(wish, name, { folder, server, signal: closing.signal });
    return {
      connected,
      lastWords: () => lastWords(this.#states, name),
      close: async () => {
        closing.abort();
        // A Pod that is being made is known only then.
        await connected.catch(() => undefined);
        server.close();
        await this.#remove(name);
        this.#live.delete(name);
        await rm(folder, { recursive: true, force: true });
      },
    };
  }

  async #connect(
    wish: ModelPodWish,
    name: string,
    own: { readonly folder: string; readonly server: Server; readonly signal: AbortSignal },
  ): Promise<Socket> {
    const { folder, server, signal } = own;
    await this.#sweep(isPodEnded);
    const path = join(folder, "engine");
    if (Buffer.byteLength(path) > MAX_SOCKET_PATH) {
      const message = `the path ${path} is too long for a socket, which takes ${MAX_SOCKET_PATH} bytes: give the worker a shorter --data`;
      throw new AppError("invalid_value", message);
    }
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const connected = Promise.withResolvers<Socket>();
    server.once("connection", connected.resolve);
    server.once("error", connected.reject);
    server.listen(path);
    signal.throwIfAborted();
    const command = engineHostCommand(path);
    await this.#create({ ...wish, name, nodeId: this.#nodeId, command, folder });
    const socket = await Promise.race([connected.promise, this.#fault(name, signal)]);
    server.close();
    return socket;
  }

  async #create(parts: ModelPodParts): Promise<void> {
    const { api } = this.#place;
    try {
      this.#states.made(await api.create(api.path("pods"), modelPod(this.#place, parts)));
    } catch (error) {
      if (error instanceof AppError) throw error;
      const { message } = error as Error;
      throw new AppError("unavailable", `Kubernetes did not take the model's Pod: ${message}`);
    }
    const { name, deployment, devices } = parts;
    this.#log.info({ pod: name, deployment, devices }, "an engine starts in a Pod");
  }

  /** Rejects where Kubernetes reports that the Pod's program cannot start; never resolves. */
  async #fault(name: string, signal: AbortSignal): Promise<never> {
    const sinceMs = performance.now();
    for (;;) {
      await delay(POLL_MS, undefined, { signal, ref: false });
      const fault = launchFault(this.#states.get(name), performance.now() - sinceMs);
      if (fault) throw new AppError("unavailable", `the Pod ${name}: ${fault.message}`);
    }
  }

  /** Removes Pods of engines that are gone. */
  async #sweep(
    isStray: (pod: NonNullable<ReturnType<PodStates["get"]>>) => boolean,
  ): Promise<void> {
    for (const name of this.#states.names) {
      const pod = this.#states.get(name);
      if (pod && !this.#live.has(name) && isStray(pod)) await this.#remove(name);
    }
  }

  /** A Pod that stays, since the API server does not answer, has ended: the next sweep finds it. */
  async #remove(name: string): Promise<void> {
    const { api } = this.#place;
    await api.remove(api.path("pods", name), 1).catch((error: Error) => {
      this.#log.warn({ pod: name, error: error.message }, "the Pod of a model was not removed");
    });
  }
}

function lastWords(states: PodStates, name: string): string | undefined {
  const { status } = states.get(name) ?? {};
  const { reason } = status?.containerStatuses?.[0]?.state?.terminated ?? {};
  const words = [status?.reason, status?.message, reason].filter(Boolean);
  return words.length === 0 ? undefined : `with its Pod ${name}: ${words.join(": ")}`;
}

/** As readable as a name of 63 characters allows. */
function podName(deployment: string): string {
  const slug = deployment
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 40)
    .replace(/-+$/, "");
  return `heddle-${slug || "model"}-${randomBytes(4).toString("hex")}`;
}
