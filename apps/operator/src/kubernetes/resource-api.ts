import { isJsonObject } from "@heddle/base/json-object";
import { RESOURCE_GROUP, RESOURCE_VERSION } from "@heddle/contracts/kubernetes/resource-kind";
import {
  ApiException,
  CustomObjectsApi,
  type KubeConfig,
  PatchStrategy,
  setHeaderOptions,
  Watch,
} from "@kubernetes/client-node";
import type { CustomResource, ResourceStatus } from "./custom-resource.ts";

/** The owner of these changes and events, as a conflict of `kubectl apply --server-side` names it. */
export const OPERATOR = "heddle-operator";
const PAGE = 500;
/** The server ends a watch after this time: the client breaks one that was quiet for 30 s off, as if lost. */
const WATCH_SECONDS = 25;

/** A list at one version of the namespace. */
export interface ResourceList<R> {
  readonly items: readonly R[];
  readonly resourceVersion: string;
}

/** An event of a watch; of a bookmark only the version counts. */
export interface WatchEvent<R> {
  readonly type: string;
  readonly object: R;
}

/** An object that is to be made. */
export interface NewObject {
  readonly metadata: {
    readonly namespace: string;
    readonly name: string;
    readonly labels: Readonly<Record<string, string>>;
    readonly annotations: Readonly<Record<string, string>>;
  };
  readonly spec: object;
}

/** Custom resources of one kind in one namespace, or in all. */
export class ResourceApi<R extends CustomResource<unknown, ResourceStatus>> {
  readonly plural: string;
  /** Undefined for all namespaces. */
  readonly namespace: string | undefined;
  readonly #objects: CustomObjectsApi;
  readonly #config: KubeConfig;

  constructor(config: KubeConfig, plural: string, namespace: string | undefined) {
    this.#config = config;
    this.#objects = config.makeApiClient(CustomObjectsApi);
    this.plural = plural;
    this.namespace = namespace;
  }

  async list(): Promise<ResourceList<R>> {
    const items: R[] = [];
    let resourceVersion = "";
    for (let _continue: string | undefined = ""; _continue !== undefined; ) {
      const page = { ...this.#kind, limit: PAGE, ...(_continue ? { _continue } : {}) };
      const { namespace } = this;
      const list: { items: R[]; metadata: { resourceVersion: string; continue?: string } } =
        namespace === undefined
          ? await this.#objects.listClusterCustomObject(page)
          : await this.#objects.listNamespacedCustomObject({ ...page, namespace });
      items.push(...list.items);
      resourceVersion = list.metadata.resourceVersion;
      _continue = list.metadata.continue || undefined;
    }
    return { items, resourceVersion };
  }

  /** Resolves when the watch has ended, rejects when it broke. */
  async watch(
    resourceVersion: string,
    onEvent: (event: WatchEvent<R>) => void,
    signal: AbortSignal,
  ): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const place = this.namespace === undefined ? "" : `/namespaces/${this.namespace}`;
    const path = `/apis/${RESOURCE_GROUP}/${RESOURCE_VERSION}${place}/${this.plural}`;
    const query = { resourceVersion, allowWatchBookmarks: true, timeoutSeconds: WATCH_SECONDS };
    const controller = await new Watch(this.#config).watch(
      path,
      query,
      (type, object) => onEvent({ type, object }),
      (error) => (error ? reject(error) : resolve()),
    );
    const end = () => controller.abort();
    signal.addEventListener("abort", end, { once: true });
    try {
      await promise;
    } finally {
      signal.removeEventListener("abort", end);
    }
  }

  /** Undefined where there is none. */
  async read(namespace: string, name: string): Promise<R | undefined> {
    return unless(404, this.#objects.getNamespacedCustomObject({ ...this.#kind, namespace, name }));
  }

  /** Undefined where the name is taken. */
  async create(kind: string, object: NewObject): Promise<R | undefined> {
    const { namespace } = object.metadata;
    const apiVersion = `${RESOURCE_GROUP}/${RESOURCE_VERSION}`;
    const target = { ...this.#changed, namespace, body: { apiVersion, kind, ...object } };
    return unless(409, this.#objects.createNamespacedCustomObject(target));
  }

  /** Changes spec or metadata; rejects with 409 where the object is not at this version any more. */
  async patch(
    object: R,
    change: { readonly metadata?: object; readonly spec?: object },
  ): Promise<R> {
    const { namespace, name, resourceVersion } = object.metadata;
    const body = { ...change, metadata: { ...change.metadata, resourceVersion } };
    const target = { ...this.#changed, namespace, name, body };
    return this.#objects.patchNamespacedCustomObject(target, MERGE);
  }

  /** Like `patch`, of the status. */
  async patchStatus(object: R, status: object): Promise<R> {
    const { namespace, name, resourceVersion } = object.metadata;
    const body = { metadata: { resourceVersion }, status };
    const target = { ...this.#changed, namespace, name, body };
    return this.#objects.patchNamespacedCustomObjectStatus(target, MERGE);
  }

  /** Deletes the very object, not a later one of its name. */
  async remove({ metadata: { namespace, name, uid } }: R): Promise<void> {
    const body = { preconditions: { uid } };
    const target = { ...this.#kind, namespace, name, body };
    await unless(404, this.#objects.deleteNamespacedCustomObject(target));
  }

  get #kind() {
    return { group: RESOURCE_GROUP, version: RESOURCE_VERSION, plural: this.plural };
  }

  get #changed() {
    return { ...this.#kind, fieldManager: OPERATOR };
  }
}

const MERGE = setHeaderOptions("Content-Type", PatchStrategy.MergePatch);

/** Undefined where the answer has this status. */
export async function unless<T>(status: number, answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (statusOf(error) === status) return undefined;
    throw error;
  }
}

/** What went wrong, for a log: of an answer of Kubernetes its status and message alone. */
export function apiFaultText(error: unknown): string {
  if (!(error instanceof ApiException)) return (error as Error).message;
  return `${error.code}: ${messageIn(error.body)}`;
}

/** The message of a Status, or the text of another body, as where a definition is missing. */
function messageIn(body: unknown): string {
  if (isJsonObject(body)) return String(body["message"] ?? body["reason"]);
  try {
    return messageIn(JSON.parse(String(body)));
  } catch {
    return String(body).trim();
  }
}

/** The HTTP status of an error of the Kubernetes client; undefined for others. */
export function statusOf(error: unknown): number | undefined {
  if (error instanceof ApiException) return error.code;
  const { statusCode } = error as { readonly statusCode?: unknown };
  return typeof statusCode === "number" ? statusCode : undefined;
}
