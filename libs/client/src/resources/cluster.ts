import type {
  ClusterMetricsReply,
  ClusterResourcesReply,
  ClusterStatusReply,
} from "@heddle/contracts/cluster";
import type { CallOptions, HttpTransport } from "../transport.ts";
import type { Route } from "../views.ts";

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

  /** Every route of the cluster, and the permission that each needs. */
  async endpoints({ signal }: CallOptions = {}): Promise<readonly Route[]> {
    const request = { method: "GET", path: "/endpoints", signal } as const;
    return (await this.#transport.json<{ data: readonly Route[] }>(request)).data;
  }
}
