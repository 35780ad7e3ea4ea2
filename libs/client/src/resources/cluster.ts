import type {
  ClusterMetricsReply,
  ClusterResourcesReply,
  ClusterStatusReply,
  IssuedJoinToken,
  JoinTokenSpec,
  Route,
} from "@heddle/contracts/api/cluster";
import type { MasterHealth } from "@heddle/contracts/api/health";
import type { OpenApiDocument } from "@heddle/contracts/openapi";
import { pathPart } from "../path-part.ts";
import type { CallOptions, HttpTransport } from "../transport.ts";

/** Which state a backup holds. */
export interface BackupOptions extends CallOptions {
  /** `stale` is the state of the master that is asked, as far as it has come. */
  readonly consistency?: "strong" | "stale" | undefined;
}

/** The cluster as a whole: `heddle.cluster`. */
export class Cluster {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** Its masters, nodes and models, and who leads. */
  status({ signal }: CallOptions = {}): Promise<ClusterStatusReply> {
    return this.#transport.json({ method: "GET", path: "/cluster/status", signal });
  }

  /** Its figures: nodes, GPUs, calls, tokens, queues, jobs, Raft. */
  metrics({ signal }: CallOptions = {}): Promise<ClusterMetricsReply> {
    return this.#transport.json({ method: "GET", path: "/cluster/metrics", signal });
  }

  /** What each node offers and what is in use, and the sums. */
  resources({ signal }: CallOptions = {}): Promise<ClusterResourcesReply> {
    return this.#transport.json({ method: "GET", path: "/cluster/resources", signal });
  }

  /** Whether the master that answers is well. A failed call is not repeated. */
  health({ signal }: CallOptions = {}): Promise<MasterHealth> {
    const request = { method: "GET", path: "/health", signal } as const;
    return this.#transport.json({ ...request, isUnversioned: true, maxRetries: 0 });
  }

  /** Asks the leader to hand over to a master, or to any other where none is named. */
  transfer(to?: string, { signal }: CallOptions = {}): Promise<ClusterStatusReply> {
    const body = to === undefined ? {} : { to };
    return this.#transport.json({ method: "POST", path: "/cluster/transfer", body, signal });
  }

  /** Has the master that answers take a snapshot and drop its log before it. */
  snapshot({ signal }: CallOptions = {}): Promise<ClusterStatusReply> {
    return this.#transport.json({ method: "POST", path: "/cluster/snapshot", body: {}, signal });
  }

  /** Takes a master out of the group; its process then ends by itself. */
  removeMaster(name: string, { signal }: CallOptions = {}): Promise<ClusterStatusReply> {
    const path = `/cluster/masters/${pathPart(name)}`;
    return this.#transport.json({ method: "DELETE", path, signal });
  }

  /** Makes a token with which one node, by its role and name, may join, once. */
  createJoinToken(body: JoinTokenSpec, { signal }: CallOptions = {}): Promise<IssuedJoinToken> {
    return this.#transport.json({ method: "POST", path: "/cluster/join-tokens", body, signal });
  }

  /** The whole replicated state, secrets included, as one file that the response's headers name. */
  backup({ consistency, signal }: BackupOptions = {}): Promise<Response> {
    const query = { consistency };
    return this.#transport.open({ method: "GET", path: "/cluster/backup", query, signal });
  }

  /** The OpenAPI document of the cluster's API. */
  openapi({ signal }: CallOptions = {}): Promise<OpenApiDocument> {
    return this.#transport.json({ method: "GET", path: "/openapi.json", signal });
  }

  /** Every route of the cluster, and the permission that each needs. */
  async endpoints({ signal }: CallOptions = {}): Promise<readonly Route[]> {
    const request = { method: "GET", path: "/endpoints", signal } as const;
    return (await this.#transport.json<{ data: readonly Route[] }>(request)).data;
  }
}
