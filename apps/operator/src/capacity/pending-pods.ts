import { keepConnected } from "@heddle/base/async/keep-connected";
import type { Heddle } from "@heddle/client/heddle";
import type { Job } from "@heddle/contracts/api/job-replies";
import { RESOURCE_GROUP } from "@heddle/contracts/kubernetes/resource-kind";
import type { Log } from "@heddle/observability/logger";
import { CoreV1Api, type KubeConfig, type V1Pod } from "@kubernetes/client-node";
import type { OnApplicationShutdown, OnModuleInit } from "@nestjs/common";
import { apiFaultText, statusOf, unless } from "../kubernetes/resource-api.ts";
import { type PendingPodSettings, podsOfGang } from "./pending-pod.ts";

/** The cluster's name, on Pods that only ask Kubernetes for nodes. */
const PENDING_LABEL = `${RESOURCE_GROUP}/pending`;

const POLL_MS = 5_000;
const POLL_BACKOFF = { baseMs: POLL_MS, maxMs: 60_000 };
/** Waiting jobs that are listed; that are asked why, the oldest first; and that Pods are made for. */
const MAX_JOBS = 1_000;
const MAX_ASKED = 128;
const MAX_GANGS = 32;
/** The most Pods of all gangs together; a gang has all of its Pods or none. */
const MAX_PODS = 256;
/**
 * States of waiting jobs. An accepted job cannot run on any present node: the setting
 * unsatisfiable_wait.
 */
const WAITING = ["pending", "accepted"] as const;
/** Blockers that another node would take away. */
const OF_SPACE: ReadonlySet<string> = new Set([
  "InsufficientGpu",
  "InsufficientCpu",
  "InsufficientMemory",
  "InsufficientTaskPlaces",
  "NoNodes",
  "Fragmented",
  "NodesDraining",
  "NodesLost",
]);

export interface PendingPodsOptions {
  readonly heddle: Pick<Heddle, "jobs">;
  readonly config: KubeConfig;
  readonly namespace: string;
  readonly cluster: string;
  readonly settings: PendingPodSettings;
  readonly log: Log;
}

/**
 * For each gang that waits for room a Pod per task that asks for as much, so that an autoscaler of
 * Kubernetes' nodes adds some. They do nothing, give way to all other pods, and go once the gang starts.
 */
export class PendingPods implements OnModuleInit, OnApplicationShutdown {
  readonly #options: PendingPodsOptions;
  readonly #api: CoreV1Api;
  readonly #closing = new AbortController();
  #run = Promise.resolve();

  constructor(options: PendingPodsOptions) {
    this.#options = options;
    this.#api = options.config.makeApiClient(CoreV1Api);
  }

  onModuleInit(): void {
    this.#run = keepConnected<unknown>({
      connect: (onOpen) => this.reconcile().then(onOpen, (error: unknown) => error),
      backoff: POLL_BACKOFF,
      signal: this.#closing.signal,
      onEnd: (error) => {
        if (error === undefined) return POLL_MS;
        const why = apiFaultText(error);
        this.#options.log.warn({ why }, "Pods for waiting jobs could not be brought up to date");
        return undefined;
      },
    });
  }

  async onApplicationShutdown(): Promise<void> {
    this.#closing.abort();
    await this.#run;
  }

  /** Makes the Pods that are missing, and removes those of gangs that wait no more. */
  async reconcile(nowMs = Date.now()): Promise<void> {
    const { namespace, cluster } = this.#options;
    const labelSelector = `${PENDING_LABEL}=${cluster}`;
    const { items } = await this.#api.listNamespacedPod({ namespace, labelSelector });
    const wanted = await this.#wanted(nowMs);
    const there = new Set<string>();
    for (const { metadata: { name = "" } = {}, status } of items) {
      there.add(name);
      const isEnded = status?.phase === "Succeeded" || status?.phase === "Failed";
      if (wanted.has(name) && !isEnded) continue;
      await unless(404, this.#api.deleteNamespacedPod({ namespace, name }));
    }
    for (const [name, body] of wanted) {
      if (!there.has(name)) await this.#create(body);
    }
  }

  async #create(body: V1Pod): Promise<void> {
    const { namespace, log } = this.#options;
    try {
      await this.#api.createNamespacedPod({ namespace, body });
    } catch (error) {
      const status = statusOf(error);
      if (status === 409) return;
      // Of this Pod alone, as by a quota or a policy: others may be taken.
      if (status !== 403 && status !== 422) throw error;
      const why = apiFaultText(error);
      log.warn(
        { name: body.metadata?.name, why },
        "Kubernetes did not take a Pod of a waiting job",
      );
    }
  }

  async #wanted(nowMs: number): Promise<ReadonlyMap<string, V1Pod>> {
    const { cluster, settings } = this.#options;
    const pods = new Map<string, V1Pod>();
    for (const job of await this.#waiting(nowMs)) {
      if (pods.size + job.tasks > MAX_PODS) continue;
      for (const pod of podsOfGang(job, settings, { [PENDING_LABEL]: cluster })) {
        pods.set(pod.metadata?.name ?? "", pod);
      }
    }
    return pods;
  }

  async #waiting(nowMs: number): Promise<readonly Job[]> {
    const { heddle, settings } = this.#options;
    const beforeMs = nowMs - 1_000 * settings.after_seconds;
    const old: { readonly id: string; readonly since: string }[] = [];
    let count = 0;
    for (const state of WAITING) {
      for await (const { id, since } of heddle.jobs.list({ state, limit: MAX_JOBS })) {
        if (Date.parse(since) <= beforeMs) old.push({ id, since });
        if (++count >= MAX_JOBS) break;
      }
    }
    old.sort((left, right) => Date.parse(left.since) - Date.parse(right.since));
    const found: Job[] = [];
    for (const { id } of old.slice(0, MAX_ASKED)) {
      if (found.length >= MAX_GANGS) break;
      const job = await heddle.jobs.get(id);
      if (waitsForRoom(job, settings)) found.push(job);
    }
    return found;
  }
}

function waitsForRoom({ explanation, gpu_count }: Job, { gpu_resource }: PendingPodSettings) {
  const blockers = explanation?.blockers ?? [];
  const isOfSpace = blockers.length > 0 && blockers.every(({ reason }) => OF_SPACE.has(reason));
  return isOfSpace && (gpu_count === 0 || gpu_resource !== "");
}
