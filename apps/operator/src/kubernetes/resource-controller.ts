import { forEachLimit } from "@heddle/base/async/for-each-limit";
import { keepConnected } from "@heddle/base/async/keep-connected";
import { CLUSTER_LABEL } from "@heddle/contracts/kubernetes/resource-kind";
import type { Log } from "@heddle/observability/logger";
import type { KubeConfig } from "@kubernetes/client-node";
import type { BindingHold } from "./binding-hold.ts";
import { type CustomResource, objectKey, type ResourceStatus } from "./custom-resource.ts";
import { hasFinalizer, removeFinalizer } from "./lifecycle.ts";
import type { ReconcileMetrics } from "./reconcile-metrics.ts";
import { Reflector } from "./reflector.ts";
import { apiFaultText, ResourceApi, statusOf, unless } from "./resource-api.ts";
import { WorkQueue } from "./work-queue.ts";

const CONCURRENCY = 8;
/** How often the Heddle cluster is asked what has changed there. */
const POLL_MS = 2_000;
const POLL_BACKOFF = { baseMs: POLL_MS, maxMs: 30_000 };

/** What no poll has found yet: it may end between two polls. */
const EXPECTED = "expected";

/** What the operator does for one kind. */
export interface Reconciler<R extends CustomResource<unknown, ResourceStatus>> {
  readonly plural: string;
  /**
   * Brings cluster and object together. It may be repeated at any time, also beside another operator.
   * Resolves with the milliseconds after which it is to be called again, if nothing changes before.
   */
  reconcile(object: R, resources: Resources<R>): Promise<number | undefined>;
  /** What the Heddle cluster has, by id, as a text that differs after each change to be shown. */
  poll(): Promise<ReadonlyMap<string, string>>;
  /** Makes the objects that things of the cluster lack; after each poll, once all objects are known. */
  mirror?(resources: Resources<R>): Promise<void>;
  /** The id in the Heddle cluster. */
  idOf(object: R): string;
}

/** The objects of all watched namespaces. */
export interface Resources<R extends CustomResource<unknown, ResourceStatus>> {
  readonly api: ResourceApi<R>;
  objects(): Iterable<R>;
  /** The cluster has something by this id: once a poll does not find it, its object is called again. */
  expect(id: string): void;
  /** Keeps the operator's rights in the object's namespace; before the object gets the finalizer. */
  hold(object: R): Promise<void>;
}

/** What the controllers of all kinds have in common. */
export interface ControllerOptions {
  readonly config: KubeConfig;
  /** Undefined means all namespaces. */
  readonly namespaces: readonly (string | undefined)[];
  /** The label's value on objects of this cluster; undefined takes all. */
  readonly cluster: string | undefined;
  /** Where a RoleBinding of each namespace gives the rights there. */
  readonly bindings?: BindingHold | undefined;
  readonly metrics: ReconcileMetrics;
  readonly log: Log;
}

/** Calls the reconciler of a kind whenever an object or what the cluster has for it has changed. */
export class ResourceController<R extends CustomResource<unknown, ResourceStatus>> {
  readonly #reconciler: Reconciler<R>;
  readonly #log: Log;
  readonly #metrics: ReconcileMetrics;
  readonly #cluster: string | undefined;
  readonly #resources: Resources<R>;
  readonly #apis: readonly ResourceApi<R>[];
  readonly #reflectors: readonly Reflector<R>[];
  readonly #bindings: BindingHold | undefined;
  readonly #queue: WorkQueue;
  readonly #closing = new AbortController();
  #seen = new Map<string, string>();
  #runs: readonly Promise<void>[] = [];

  constructor(reconciler: Reconciler<R>, options: ControllerOptions) {
    const { config, namespaces, cluster, bindings, metrics, log } = options;
    this.#cluster = cluster;
    this.#bindings = bindings;
    this.#reconciler = reconciler;
    this.#log = log;
    this.#metrics = metrics;
    const { plural } = reconciler;
    const queue = new WorkQueue({
      concurrency: CONCURRENCY,
      work: (key) => this.#work(key),
      onError: (key, error, pauseMs) => this.#report(key, error, pauseMs),
    });
    const apis = namespaces.map((namespace) => new ResourceApi<R>(config, plural, namespace));
    const onChange = (key: string) => {
      this.#note(key);
      queue.add(key);
    };
    const reflectors = apis.map((api) => new Reflector(api, onChange, log));
    this.#queue = queue;
    this.#apis = apis;
    this.#reflectors = reflectors;
    const [api] = apis;
    if (!api) throw new Error("an operator watches at least one namespace");
    const objects = () => reflectors.flatMap((reflector) => [...reflector.objects()]);
    const expect = (id: string) => {
      if (!this.#seen.has(id)) this.#seen.set(id, EXPECTED);
    };
    const hold = async (object: R) => {
      await bindings?.hold(object.metadata.namespace, `${plural} ${objectKey(object)}`);
    };
    this.#resources = { api, objects, expect, hold };
    metrics.watch({ plural, objects: () => objects().length, open: () => queue.size });
  }

  /** Whether all objects of all namespaces are known. */
  get isSynced(): boolean {
    return this.#reflectors.every((reflector) => reflector.isSynced);
  }

  isSyncedIn(namespace: string): boolean {
    const places = this.#apis.map((api) => api.namespace);
    return this.#reflectors.every(({ isSynced }, at) => isSynced || places[at] !== namespace);
  }

  start(): void {
    const { signal } = this.#closing;
    const listing = keepConnected<unknown>({
      connect: (onOpen) =>
        this.#poll().then(onOpen, (error: unknown) => {
          return error;
        }),
      backoff: POLL_BACKOFF,
      signal,
      onEnd: (error) => {
        if (error === undefined) return POLL_MS;
        const why = (error as Error).message;
        this.#log.warn({ plural: this.#reconciler.plural, why }, "the masters do not answer");
        return undefined;
      },
    });
    this.#runs = [listing, ...this.#reflectors.map((reflector) => reflector.run(signal))];
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#queue.close();
    await Promise.all(this.#runs);
  }

  /** Ends all work, and takes the finalizer from all objects: nothing of the cluster is left. */
  async abandon(): Promise<void> {
    await this.#queue.close();
    for (const api of this.#apis) {
      // The rights may have gone with the namespace.
      const list = await unless(403, api.list());
      const own = (list?.items ?? []).filter(
        (object) => hasFinalizer(object) && !this.#isOfAnother(object),
      );
      await forEachLimit(own, CONCURRENCY, (object) => removeFinalizer(api, object));
    }
  }

  async #poll(): Promise<void> {
    const found = await this.#reconciler.poll();
    const ids = new Set([...found.keys(), ...this.#seen.keys()]);
    const changed = [...ids].filter((id) => found.get(id) !== this.#seen.get(id));
    this.#seen = new Map(found);
    if (this.isSynced) await this.#reconciler.mirror?.(this.#resources);
    if (changed.length === 0) return;
    const wanted = new Set(changed);
    for (const object of this.#resources.objects()) {
      if (!wanted.has(this.#reconciler.idOf(object))) continue;
      this.#queue.add(`${object.metadata.namespace}/${object.metadata.name}`);
    }
  }

  async #work(key: string): Promise<void> {
    const object = this.#objectOf(key);
    if (!object || this.#isOfAnother(object)) return;
    const againMs = await this.#reconciler.reconcile(object, this.#resources);
    this.#metrics.count(this.#reconciler.plural, "done");
    if (againMs !== undefined) this.#queue.addAfter(key, againMs);
  }

  #objectOf(key: string): R | undefined {
    return this.#reflectors.map((each) => each.get(key)).find((found) => found);
  }

  #note(key: string): void {
    const object = this.#objectOf(key);
    const [namespace = ""] = key.split("/");
    const isOwned = object !== undefined && hasFinalizer(object) && !this.#isOfAnother(object);
    this.#bindings?.note(namespace, `${this.#reconciler.plural} ${key}`, isOwned);
  }

  /** Several clusters may have operators in a namespace: a label says whose an object is. */
  #isOfAnother({ metadata }: R): boolean {
    const owner = metadata.labels?.[CLUSTER_LABEL];
    return owner !== undefined && this.#cluster !== undefined && owner !== this.#cluster;
  }

  /** Such answers only say that the object has changed or gone meanwhile: its event is under way. */
  #report(key: string, error: unknown, pauseMs: number): void {
    // It may have got no finalizer after all.
    this.#note(key);
    const { plural } = this.#reconciler;
    const isOutdated = [404, 409].includes(statusOf(error) ?? 0);
    this.#metrics.count(plural, isOutdated ? "conflict" : "failed");
    if (isOutdated) return;
    const fields = { plural, key, why: apiFaultText(error), pauseMs: Math.round(pauseMs) };
    this.#log.warn(fields, "an object could not be reconciled; again later");
  }
}
