import type {
  ClusterMetricsReply,
  ClusterResourcesReply,
  ClusterStatusReply,
} from "@heddle/contracts/cluster";
import type { CallOptions, Transport } from "./transport.ts";

/** The cluster as a whole: `heddle.cluster`. */
export class Cluster {
  readonly #transport: Transport;

  constructor(transport: Transport) {
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
}
