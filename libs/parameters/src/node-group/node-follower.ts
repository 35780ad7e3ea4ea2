import { AppError } from "@heddle/base/errors";
import type { ParameterClient, Parameters, PushTerms } from "@heddle/training/parameter-client";
import { DataConnection } from "../data-plane/data-connection.ts";
import { PartSource } from "../data-plane/part-source.ts";
import { SlabScatter } from "../data-plane/slab-scatter.ts";
import type { ParameterServerClientOptions } from "../parameter-server-client.ts";
import { checkTensors, planDigest } from "../shards/job-plan.ts";
import { type ShardLayout, shardLayouts, slabPieces } from "../shards/shard-layout.ts";
import { fragmentsOf, type ShardSetSpec } from "../shards/shard-spec.ts";
import type { NodeGroup } from "./node-group.ts";

/** A follower's request to its leader: for parameters, after its part of the update before them. */
export interface FollowerRequest extends Partial<PushTerms> {
  readonly member: number;
  /** Pushes so far; 0 before the first. */
  readonly clock: number;
  /** The address of the part, unix:PATH. */
  readonly source: string;
  /** The digest of its plan. */
  readonly plan: string;
}

/**
 * A task whose parts go through the leading task of its node. A push's errors are thrown by the
 * pull.
 */
export class NodeFollower implements ParameterClient {
  readonly servers = undefined;
  readonly #member: number;
  readonly #spec: ShardSetSpec;
  readonly #plan: string;
  readonly #layout: ShardLayout;
  readonly #source: PartSource;
  readonly #leader: DataConnection;
  readonly #signal: AbortSignal;
  #clock = 0;
  #terms: PushTerms | undefined;

  private constructor(
    options: ParameterServerClientOptions,
    group: NodeGroup,
    source: PartSource,
    leader: DataConnection,
  ) {
    const { spec, signal } = options;
    this.#member = group.member;
    this.#spec = spec;
    this.#plan = planDigest(spec);
    this.#layout = nodeLayout(options);
    this.#source = source;
    this.#leader = leader;
    this.#signal = signal;
  }

  static async start(
    options: ParameterServerClientOptions,
    group: NodeGroup,
  ): Promise<NodeFollower> {
    const { spec, host, signal } = options;
    const { attempt, jobToken } = spec;
    const leader = await DataConnection.open(`unix:${group.socketPath}`, jobToken, signal);
    const socketPath = `${group.socketPath}.${group.member}`;
    const paths = ["unix"] as const;
    const source = await PartSource.start({
      attempt,
      jobToken,
      isEncrypted: false,
      host,
      paths,
      socketPath,
    });
    return new NodeFollower(options, group, source, leader);
  }

  async push(part: Parameters, terms: PushTerms): Promise<void> {
    checkTensors(this.#spec, part);
    this.#clock++;
    this.#terms = terms;
    const pieces = [...slabPieces(this.#layout, part)];
    this.#source.keep(this.#clock, new Map([[0, { bytes: this.#layout.elements * 4, pieces }]]));
  }

  async pull(into: Parameters): Promise<number> {
    checkTensors(this.#spec, into);
    const [source = ""] = this.#source.addresses;
    const request: FollowerRequest = {
      member: this.#member,
      clock: this.#clock,
      source,
      plan: this.#plan,
      ...this.#terms,
    };
    const sink = new SlabScatter(this.#layout, into);
    const { version } = await this.#leader.request(request, sink, this.#signal);
    this.#source.release();
    return version;
  }

  /** A follower has no tasks to notify. */
  async dismiss(): Promise<void> {}

  async close(): Promise<void> {
    this.#leader.close();
    await this.#source.close();
  }
}

/** The layout of the whole model, or of the client's fragment, as one slab. */
export function nodeLayout({ spec, fragment = 0 }: ParameterServerClientOptions): ShardLayout {
  const fragments = fragmentsOf(spec);
  const layout = shardLayouts(spec.parameters, fragments, fragments)[fragment];
  if (layout) return layout;
  throw new AppError("invalid_value", `a model of ${fragments} fragments has none ${fragment}`);
}
