import { keepConnected } from "@heddle/base/async/keep-connected";
import type { Log } from "@heddle/observability/logger";
import type { KubernetesApi } from "./kubernetes-api.ts";
import type { Pod } from "./kubernetes-types.ts";

const PAGE = "500";
const reconnect = { baseMs: 250, maxMs: 10_000 };

/** What the API server says of this worker's Pods, kept up to date by a watch. */
export class PodStates {
  readonly #api: KubernetesApi;
  readonly #selector: string;
  readonly #log: Log;
  readonly #pods = new Map<string, Pod>();
  /** Made since the list that is being read began: the list may lack them. */
  readonly #made = new Set<string>();
  #fault = "";

  /** `selector` is that of labels. */
  constructor(api: KubernetesApi, selector: string, log: Log) {
    this.#api = api;
    this.#selector = selector;
    this.#log = log;
  }

  /** Undefined where there is none, as far as is known. */
  get(name: string): Pod | undefined {
    return this.#pods.get(name);
  }

  get names(): readonly string[] {
    return [...this.#pods.keys()];
  }

  /** Knows a Pod before its first event. */
  made(pod: Pod): void {
    this.#made.add(pod.metadata.name);
    this.#pods.set(pod.metadata.name, pod);
  }

  /** Rejects where the API server refuses the list; later faults are logged and retried. */
  async start(): Promise<void> {
    const version = await this.#list();
    void this.#follow(version);
  }

  async #follow(first: string): Promise<void> {
    let version: string | undefined = first;
    const { signal } = new AbortController();
    await keepConnected({
      backoff: reconnect,
      signal,
      connect: async (onOpen) => {
        try {
          version ??= await this.#list();
          version = await this.#watch(version);
          this.#fault = "";
          onOpen();
        } catch (error) {
          version = undefined;
          this.#report(error);
        }
      },
    });
  }

  /** Resolves with the version to continue with; undefined where a new list is needed. */
  async #watch(from: string): Promise<string | undefined> {
    let version: string | undefined = from;
    const query = {
      labelSelector: this.#selector,
      resourceVersion: from,
      allowWatchBookmarks: "true",
    };
    await this.#api.watch(this.#api.path("pods"), query, ({ type, object }) => {
      const pod = object as Pod;
      version = type === "ERROR" ? undefined : pod.metadata.resourceVersion;
      if (type === "DELETED") this.#pods.delete(pod.metadata.name);
      else if (type === "ADDED" || type === "MODIFIED") this.#pods.set(pod.metadata.name, pod);
    });
    return version;
  }

  async #list(): Promise<string> {
    this.#made.clear();
    const found = new Map<string, Pod>();
    let version = "";
    for (let next: string | undefined = ""; next !== undefined; ) {
      const query = { labelSelector: this.#selector, limit: PAGE, ...(next && { continue: next }) };
      const list: {
        readonly items: readonly Pod[];
        readonly metadata: { readonly resourceVersion: string; readonly continue?: string };
      } = await this.#api.get(this.#api.path("pods"), query);
      for (const pod of list.items) found.set(pod.metadata.name, pod);
      version = list.metadata.resourceVersion;
      next = list.metadata.continue || undefined;
    }
    for (const name of this.#pods.keys()) {
      if (!found.has(name) && !this.#made.has(name)) this.#pods.delete(name);
    }
    for (const [name, pod] of found) this.#pods.set(name, pod);
    return version;
  }

  #report(error: unknown): void {
    const { message } = error as Error;
    if (message === this.#fault) return;
    this.#fault = message;
    this.#log.warn({ error: message }, "the states of Pods are not known now");
  }
}
