import { SerialQueue } from "@heddle/base/async/serial-queue";
import { AppError } from "@heddle/base/errors";
import { FINALIZER } from "@heddle/contracts/kubernetes/resource-kind";
import type { Log } from "@heddle/observability/logger";
import {
  type KubeConfig,
  PatchStrategy,
  RbacAuthorizationV1Api,
  setHeaderOptions,
  type V1RoleBinding,
} from "@kubernetes/client-node";
import { apiFaultText, unless } from "./resource-api.ts";
import { WorkQueue } from "./work-queue.ts";

const NOT_SYNCED_MS = 500;

export interface BindingHoldOptions {
  readonly config: KubeConfig;
  /** The RoleBinding of each namespace by which the operator has its rights there. */
  readonly name: string;
  /** Whether all objects of the namespace are known: without that it may have finalizers. */
  readonly isSynced: (namespace: string) => boolean;
  readonly log: Log;
}

/**
 * Kubernetes deletes the RoleBinding of a namespace that ends before the operator has removed the
 * finalizers of its jobs and models. So while they have one, the RoleBinding has it too.
 */
export class BindingHold {
  readonly #api: RbacAuthorizationV1Api;
  readonly #options: BindingHoldOptions;
  readonly #queue: WorkQueue;
  readonly #changes = new SerialQueue();
  /** The objects with a finalizer, by namespace. */
  readonly #finalized = new Map<string, Set<string>>();
  readonly #held = new Set<string>();

  constructor(options: BindingHoldOptions) {
    this.#options = options;
    this.#api = options.config.makeApiClient(RbacAuthorizationV1Api);
    this.#queue = new WorkQueue({
      concurrency: 1,
      work: (namespace) => this.#settle(namespace),
      onError: (namespace, error, pauseMs) => {
        const fields = { namespace, why: apiFaultText(error), pauseMs: Math.round(pauseMs) };
        options.log.warn(fields, "a RoleBinding could not be changed; again later");
      },
    });
  }

  /** An earlier operator may have left a RoleBinding held. */
  start(namespaces: readonly string[]): void {
    for (const namespace of namespaces) this.#queue.add(namespace);
  }

  /** Before an object gets the finalizer; rejects where its namespace is being deleted. */
  async hold(namespace: string, object: string): Promise<void> {
    this.#finalizedOf(namespace).add(object);
    await this.#changes.run(() => this.#set(namespace, true));
  }

  /** Whether the object has the finalizer, as a watch says. */
  note(namespace: string, object: string, hasFinalizer: boolean): void {
    const finalized = this.#finalizedOf(namespace);
    if (hasFinalizer) finalized.add(object);
    else if (!finalized.delete(object)) return;
    if (finalized.size > 0 !== this.#held.has(namespace)) this.#queue.add(namespace);
  }

  /** Lets all RoleBindings go: no object has the finalizer any more. */
  async releaseAll(): Promise<void> {
    await this.#queue.close();
    await this.#changes.run(async () => {
      for (const namespace of this.#held) await this.#set(namespace, false);
    });
  }

  close(): Promise<void> {
    return this.#queue.close();
  }

  async #settle(namespace: string): Promise<void> {
    if (!this.#options.isSynced(namespace)) return this.#queue.addAfter(namespace, NOT_SYNCED_MS);
    await this.#changes.run(() => this.#set(namespace, this.#finalizedOf(namespace).size > 0));
  }

  async #set(namespace: string, isHeld: boolean): Promise<void> {
    if (isHeld && this.#held.has(namespace)) return;
    const { name } = this.#options;
    const binding = await unless(404, this.#api.readNamespacedRoleBinding({ name, namespace }));
    const before = binding?.metadata?.finalizers ?? [];
    if (binding && before.includes(FINALIZER) !== isHeld) {
      if (isHeld && binding.metadata?.deletionTimestamp) {
        const message = `the namespace ${namespace} or its RoleBinding ${name} is being deleted`;
        throw new AppError("unavailable", message);
      }
      const others = before.filter((each) => each !== FINALIZER);
      await this.#patch(namespace, binding, isHeld ? [...others, FINALIZER] : others);
    }
    if (isHeld && binding) this.#held.add(namespace);
    else this.#held.delete(namespace);
  }

  async #patch(
    namespace: string,
    { metadata }: V1RoleBinding,
    finalizers: readonly string[],
  ): Promise<void> {
    const body = { metadata: { finalizers, resourceVersion: metadata?.resourceVersion } };
    const { name } = this.#options;
    await this.#api.patchNamespacedRoleBinding({ name, namespace, body }, MERGE);
  }

  #finalizedOf(namespace: string): Set<string> {
    const known = this.#finalized.get(namespace) ?? new Set();
    this.#finalized.set(namespace, known);
    return known;
  }
}

const MERGE = setHeaderOptions("Content-Type", PatchStrategy.MergePatch);
