import type {
  ClusterMetricsReply,
  ClusterResourcesReply,
  ClusterStatusReply,
  IssuedJoinToken,
  JoinTokenSpec,
  Route,
} from "@heddle/contracts/api/cluster";
import type { DetailedHealth, MasterHealth } from "@heddle/contracts/api/health";
import type {
  PastCollection,
  PastState,
  SchedulingDecision,
} from "@heddle/contracts/api/history/state";
import type { OpenApiDocument } from "@heddle/contracts/openapi";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, GetOptions, HttpTransport, Request } from "../../transport.ts";

/** The state that a backup holds. */
export interface BackupOptions extends CallOptions {
  /** `stale` is the applied state of the master that answers. */
  readonly consistency?: "strong" | "stale" | undefined;
  /** False leaves out the contents of documents. */
  readonly documents?: boolean | undefined;
}

export interface RemoveOptions extends CallOptions {
  readonly force?: boolean | undefined;
}

/** A position of the log. */
export interface PastOptions extends CallOptions {
  readonly at: number;
}

/** A page of a collection of the state then; only counts without one. */
export interface PastStateOptions extends PastOptions {
  readonly collection?: PastCollection | undefined;
  readonly limit?: number | undefined;
  readonly after?: string | undefined;
}

/** The cluster as a whole: `heddle.cluster`. */
export class Cluster {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** Its masters, nodes and models, and the leader. */
  status({ signal, consistency }: GetOptions = {}): Promise<ClusterStatusReply> {
    const path = "/cluster/status";
    return this.#transport.json({ method: "GET", path, signal, query: { consistency } });
  }

  /** Its metrics: nodes, GPUs, calls, tokens, queues, jobs, Raft. */
  metrics({ signal }: CallOptions = {}): Promise<ClusterMetricsReply> {
    return this.#transport.json({ method: "GET", path: "/cluster/metrics", signal });
  }

  /** What each node offers and what is in use, with totals. */
  resources({ signal }: CallOptions = {}): Promise<ClusterResourcesReply> {
    return this.#transport.json({ method: "GET", path: "/cluster/resources", signal });
  }

  /** The health of the master that answers. A failed call is not retried. */
  health({ signal }: CallOptions = {}): Promise<MasterHealth> {
    return this.#transport.json(probe("/health", signal));
  }

  /** The same with its components, its clock and what it uses of its machine. */
  detailedHealth({ signal }: CallOptions = {}): Promise<DetailedHealth> {
    return this.#transport.json(probe("/health/detailed", signal));
  }

  /** Resolves if a master answers, even one that has halted. A failed call is not retried. */
  async live({ signal }: CallOptions = {}): Promise<void> {
    const { body } = await this.#transport.open(probe("/livez", signal));
    await body?.cancel();
  }

  /** Transfers leadership to a master, or to any other if none is named. */
  transfer(to?: string, { signal }: CallOptions = {}): Promise<ClusterStatusReply> {
    const body = to === undefined ? {} : { to };
    return this.#transport.json({ method: "POST", path: "/cluster/transfer", body, signal });
  }

  /** The master that answers takes a snapshot and truncates its log. */
  snapshot({ signal }: CallOptions = {}): Promise<ClusterStatusReply> {
    return this.#transport.json({ method: "POST", path: "/cluster/snapshot", body: {}, signal });
  }

  /**
   * Removes a master from the group; its process then exits. `force` removes it also where the
   * others lack contents of documents, which may then be lost.
   */
  removeMaster(name: string, { force, signal }: RemoveOptions = {}): Promise<ClusterStatusReply> {
    const path = `/cluster/masters/${pathPart(name)}`;
    return this.#transport.json({ method: "DELETE", path, query: { force }, signal });
  }

  /** Creates a token with which one node, of a role and name, may join once. */
  createJoinToken(body: JoinTokenSpec, { signal }: CallOptions = {}): Promise<IssuedJoinToken> {
    return this.#transport.json({ method: "POST", path: "/cluster/join-tokens", body, signal });
  }

  /** The whole replicated state, secrets included, as a file that the response headers name. */
  backup({ consistency, documents, signal }: BackupOptions = {}): Promise<Response> {
    const query = { consistency, documents };
    return this.#transport.open({ method: "GET", path: "/cluster/backup", query, signal });
  }

  /** The state at a position of the log that the answering master still keeps. */
  state(query: PastStateOptions): Promise<PastState> {
    const { signal, ...rest } = query;
    return this.#transport.json({ method: "GET", path: "/cluster/state", query: rest, signal });
  }

  /** What the scheduler decides of a job with the state at that position. */
  decision(job: string, { at, signal }: PastOptions): Promise<SchedulingDecision> {
    const path = `/cluster/state/jobs/${pathPart(job)}/decision`;
    return this.#transport.json({ method: "GET", path, query: { at }, signal });
  }

  /** The OpenAPI document of the cluster's API. */
  openapi({ signal }: CallOptions = {}): Promise<OpenApiDocument> {
    return this.#transport.json({ method: "GET", path: "/openapi.json", signal });
  }

  /** Every route of the cluster with its required permission. */
  async endpoints({ signal }: CallOptions = {}): Promise<readonly Route[]> {
    const request = { method: "GET", path: "/endpoints", signal } as const;
    return (await this.#transport.json<{ data: readonly Route[] }>(request)).data;
  }
}

function probe(path: string, signal: AbortSignal | undefined): Request {
  return { method: "GET", path, signal, isUnversioned: true, maxRetries: 0 };
}
