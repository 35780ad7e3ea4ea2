import type {
  ClusterMetricsReply,
  ClusterResourcesReply,
  ClusterStatusReply,
} from "@heddle/contracts/cluster";
import type { CallOptions, Transport } from "./transport.ts";

/** Figures of jobs: by state, why they wait, what stands idle. */
export interface JobFigures {
  readonly jobs: Readonly<Record<string, number>>;
  readonly pending_by_reason: Readonly<Record<string, number>>;
  readonly gpus: {
    readonly total: number;
    readonly held: number;
    readonly idle_percent: number;
    readonly fragmentation_percent: number;
  };
  /** By project, of the last 30 days. */
  readonly gpu_hours: Readonly<Record<string, number>>;
}

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

  /** Its figures: nodes, GPUs, calls, tokens, queues, Raft. */
  metrics({ signal }: CallOptions = {}): Promise<ClusterMetricsReply> {
    return this.#transport.json({ method: "GET", path: "/cluster/metrics", signal });
  }

  /** What each node offers and what is in use, and the sums. */
  resources({ signal }: CallOptions = {}): Promise<ClusterResourcesReply> {
    return this.#transport.json({ method: "GET", path: "/cluster/resources", signal });
  }

  /** Figures of jobs. */
  jobs({ signal }: CallOptions = {}): Promise<JobFigures> {
    return this.#transport.json({ method: "GET", path: "/cluster/jobs", signal });
  }
}
