import { retry } from "@heddle/base/async/retry";
import { AppError, toAppError } from "@heddle/base/errors";
import { ownSocketPath } from "@heddle/base/temporary-socket";
import type { ShardStatus__Output } from "@heddle/contracts/generated/heddle/v1/ShardStatus";
import { bulkChannelOptions } from "@heddle/rpc/channel-options";
import { type CallerCredentials, isEncrypted } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import type { ParameterClient, Parameters, PushTerms } from "@heddle/training/parameter-client";
import type { DataPath } from "./data-plane/data-route.ts";
import { DataRoute } from "./data-plane/data-route.ts";
import { type EncodedPart, PartEncoder } from "./data-plane/part-encoder.ts";
import { PartSource } from "./data-plane/part-source.ts";
import { PublishedMirror } from "./data-plane/published-mirror.ts";
import {
  type PushArgument,
  PushReplySink,
  pushReplyChunk,
} from "./data-plane/push-announcement.ts";
import { SlabScatter } from "./data-plane/slab-scatter.ts";
import { checkTensors, planDigest } from "./shards/job-plan.ts";
import { type ShardLayout, shardLayouts } from "./shards/shard-layout.ts";
import { shardMethods } from "./shards/shard-methods.ts";
import { fragmentsOf, type ShardSetSpec } from "./shards/shard-spec.ts";

export interface ParameterServerClientOptions {
  readonly spec: ShardSetSpec;
  /** The rank of this worker, or of its node where the tasks of a node go together. */
  readonly rank: number;
  /** The incarnation of the task, where it has replaced another; 0 where absent. */
  readonly incarnation?: number | undefined;
  /** This task's credentials for the servers. */
  readonly credentials: CallerCredentials;
  /** An address of this machine that servers reach; a private one. */
  readonly host: string;
  /** The fragment that it exchanges, from 0; without fragments the whole model. */
  readonly fragment?: number | undefined;
  /** Where its socket lies, a path of at most 70 bytes; absent: the temporary directory. */
  readonly socketDirectory?: string | undefined;
  /** Ends every wait. */
  readonly signal: AbortSignal;
  /** For top-k, the share of the elements in a part; 0.01 by default. */
  readonly topkFraction?: number | undefined;
  /** The paths that data may take; all by default. */
  readonly paths?: readonly DataPath[] | undefined;
  /** How long a server may be unreachable before a call fails; 30 s by default. */
  readonly timeoutMs?: number | undefined;
}

/** A client's part of the job's status. */
export interface ParameterTraffic {
  /** Indexed by shard: the latest paths of pulls and of pushes; empty before the first. */
  readonly paths: readonly { readonly pull: string; readonly push: string }[];
  readonly bytesPushed: number;
  readonly bytesPulled: number;
  /** Calls that were retried because a server was unreachable. */
  readonly retries: number;
}

/** The longest that a push or a pull may wait for other workers. */
const WAIT_MS = 3_600_000;
const STATUS_MS = 10_000;

/** The best first, as measured on one machine. */
const PATHS: readonly DataPath[] = ["unix", "tcp", "grpc"];

/** Where nodes use TLS no data crosses machines in the clear. */
function usable({ paths, credentials }: ParameterServerClientOptions): readonly DataPath[] {
  return PATHS.filter(
    (path) => (paths?.includes(path) ?? true) && !(path === "tcp" && isEncrypted(credentials)),
  );
}

interface ShardLink {
  readonly shard: number;
  readonly peer: Peer;
  readonly layout: ShardLayout;
  readonly encoder: PartEncoder;
  readonly route: DataRoute;
  /** With a pull compression: the shard's published parameters. */
  readonly mirror: PublishedMirror | undefined;
  /** Addresses for pulls, the best first. */
  targets: readonly string[];
  pushPath: string;
}

/** The shards of the client's fragment. */
function openLinks(options: ParameterServerClientOptions): ShardLink[] {
  const { spec, credentials, fragment = 0 } = options;
  const encoding = { compression: spec.compression, topkFraction: options.topkFraction ?? 0.01 };
  const fragments = fragmentsOf(spec);
  const each = spec.servers.length / fragments;
  const layouts = shardLayouts(spec.parameters, spec.servers.length, fragments);
  return layouts.slice(fragment * each, (fragment + 1) * each).map((layout, i) => {
    const shard = fragment * each + i;
    return {
      shard,
      layout,
      targets: [],
      pushPath: "",
      peer: new Peer(
        spec.servers[shard] ?? "",
        credentials,
        "parameter-server",
        bulkChannelOptions,
      ),
      encoder: new PartEncoder(layout, encoding),
      route: new DataRoute(),
      mirror: spec.pullCompression === "int8" ? new PublishedMirror(layout) : undefined,
    };
  });
}

/**
 * Joins the shards of a job, which are open, as one rank. Rejects with an AppError:
 * `precondition_failed` where a later attempt has them, `shard_unavailable` where they are not
 * open.
 */
export async function connectParameters(
  options: ParameterServerClientOptions,
): Promise<ParameterServerClient> {
  const { spec, credentials } = options;
  const links = openLinks(options);
  const source = await PartSource.start({
    attempt: spec.attempt,
    jobToken: spec.jobToken,
    host: options.host,
    isEncrypted: isEncrypted(credentials),
    paths: usable(options),
    socketPath: ownSocketPath("data", options.socketDirectory),
  });
  const client = new ParameterServerClient(options, links, source);
  try {
    await client.join();
  } catch (error) {
    await client.close();
    throw error;
  }
  return client;
}

/** A worker's client of its job's parameter servers; one call at a time. */
export class ParameterServerClient implements ParameterClient {
  readonly #options: ParameterServerClientOptions;
  readonly #links: readonly ShardLink[];
  readonly #source: PartSource;
  readonly #plan: string;
  readonly #closed = new AbortController();
  readonly #signal: AbortSignal;
  #clock = 0;
  #bytesPushed = 0;
  #bytesPulled = 0;
  #retries = 0;

  constructor(
    options: ParameterServerClientOptions,
    links: readonly ShardLink[],
    source: PartSource,
  ) {
    this.#options = options;
    this.#links = links;
    this.#source = source;
    this.#plan = planDigest(options.spec);
    this.#signal = AbortSignal.any([options.signal, this.#closed.signal]);
  }

  /** This rank's pushes so far, earlier attempts included. */
  get clock(): number {
    return this.#clock;
  }

  get traffic(): ParameterTraffic {
    return {
      paths: this.#links.map(({ route, pushPath }) => ({ pull: route.path, push: pushPath })),
      bytesPushed: this.#bytesPushed,
      bytesPulled: this.#bytesPulled,
      retries: this.#retries,
    };
  }

  /** Reads how often this rank has pushed, and the addresses of data. */
  async join(): Promise<void> {
    const clocks = await this.#each(async ({ shard, peer }) => {
      const { rank, incarnation = 0 } = this.#options;
      const { certificate } = this.#source;
      const request = { id: this.#id(shard), rank, leaves: false, incarnation, certificate };
      return (await peer.unary(shardMethods.changeMember, request, this.#brief())).clock;
    });
    await this.#each((link) => this.#locate(link));
    this.#clock = Math.min(...clocks);
  }

  /** Sends the job its first parameters; existing ones stay. */
  async initialize(parameters: Parameters): Promise<void> {
    checkTensors(this.#options.spec, parameters);
    const parts = this.#encode(({ encoder }) => encoder.plain(parameters));
    await this.#send(0, parts, { weight: 1, learningRate: 0 }, 0);
  }

  async push(part: Parameters, terms: PushTerms): Promise<void> {
    checkTensors(this.#options.spec, part);
    const clock = this.#clock + 1;
    const parts = this.#encode(({ encoder }) => encoder.encode(part));
    await this.#send(clock, parts, terms, this.#squares(part));
    this.#clock = clock;
    for (const { bytes } of parts.values()) this.#bytesPushed += bytes;
  }

  async pull(into: Parameters): Promise<number> {
    checkTensors(this.#options.spec, into);
    const versions = await this.#each((link) => this.#pullShard(link, into));
    const version = Math.min(...versions);
    // An update that was made without this rank counts as pushed by it.
    if (this.#options.spec.consistency.kind === "bsp") this.#clock = Math.max(this.#clock, version);
    this.#source.release();
    return version;
  }

  /** Leaves the job for good: no update waits for this rank any more. */
  async leave(): Promise<void> {
    await this.#each(async ({ shard, peer }) => {
      const { rank, incarnation = 0 } = this.#options;
      const request = { id: this.#id(shard), rank, leaves: true, incarnation };
      await peer.unary(shardMethods.changeMember, request, this.#brief());
    });
  }

  /** The status of each shard. */
  status(): Promise<ShardStatus__Output[]> {
    return this.#each(({ shard, peer }) =>
      peer.unary(shardMethods.status, this.#id(shard), this.#brief()),
    );
  }

  async close(): Promise<void> {
    this.#closed.abort(new AppError("cancelled", "the parameter client was closed"));
    for (const { peer, route } of this.#links) {
      route.close();
      peer.close();
    }
    await this.#source.close();
  }

  /** Keyed by shard. */
  #encode(encode: (link: ShardLink) => EncodedPart): ReadonlyMap<number, EncodedPart> {
    return new Map(this.#links.map((link) => [link.shard, encode(link)]));
  }

  async #send(
    clock: number,
    parts: ReadonlyMap<number, EncodedPart>,
    terms: PushTerms,
    squares: number,
  ): Promise<void> {
    this.#source.keep(clock, parts);
    const { rank } = this.#options;
    const sources = [...this.#source.addresses];
    const { weight, learningRate } = terms;
    const push = { rank, clock, weight, learningRate, sources, squares, plan: this.#plan };
    await this.#each(async (link) => {
      const path = await this.#announce(link, push);
      if (path !== "") link.pushPath = path;
    });
  }

  /**
   * Announces a part to a shard, over the connection of pulls where there is one; returns the
   * part's path. A gRPC call and two messages between threads cost more than a small part.
   */
  async #announce(link: ShardLink, push: PushArgument): Promise<string> {
    const reply = new PushReplySink();
    const request = { id: this.#id(link.shard), ...push, sources: [...push.sources] };
    const wait = { deadlineMs: WAIT_MS, signal: this.#signal };
    await link.route.fetch({
      targets: link.targets,
      token: this.#options.spec.jobToken,
      request: { push },
      sink: () => reply,
      overGrpc: async function* () {
        const { version, path } = await link.peer.unary(shardMethods.push, request, wait);
        yield pushReplyChunk(version, path);
      },
      signal: AbortSignal.any([this.#signal, AbortSignal.timeout(WAIT_MS)]),
    });
    return reply.path;
  }

  async #pullShard(link: ShardLink, into: Parameters): Promise<number> {
    const { rank } = this.#options;
    const clock = this.#clock;
    // The version plus one, so that 0 means that nothing is held.
    const held = link.mirror?.version === undefined ? 0 : link.mirror.version + 1;
    const wanted = { rank, clock, held, plan: this.#plan };
    const request = { id: this.#id(link.shard), ...wanted };
    try {
      const { version, bytes } = await link.route.fetch({
        targets: link.targets,
        token: this.#options.spec.jobToken,
        request: wanted,
        sink: () => link.mirror?.sink() ?? new SlabScatter(link.layout, into),
        overGrpc: (_address, signal) => link.peer.serverStream(shardMethods.pull, request, signal),
        signal: AbortSignal.any([this.#signal, AbortSignal.timeout(WAIT_MS)]),
      });
      this.#bytesPulled += bytes;
      link.mirror?.copyTo(into);
      return version;
    } catch (error) {
      // The shard may have been opened elsewhere, or have been taken over; `#locate` finds out.
      if (toAppError(error).code === "unavailable") await this.#locate(link);
      throw error;
    }
  }

  async #locate(link: ShardLink): Promise<void> {
    const { shard, peer } = link;
    const status = await peer.unary(shardMethods.status, this.#id(shard), this.#brief());
    // A server that listens on all addresses reports one that is meaningless here.
    const host = peer.address.slice(0, peer.address.lastIndexOf(":"));
    const port = status.dataAddress.slice(status.dataAddress.lastIndexOf(":"));
    const targets = { unix: status.dataSocket, tcp: `tcp:${host}${port}`, grpc: `grpc:${host}` };
    link.targets = usable(this.#options).map((path) => targets[path]);
  }

  /** Calls every shard; failures of an absent server are retried for a while. */
  async #each<Result>(work: (link: ShardLink) => Promise<Result>): Promise<Result[]> {
    return Promise.all(this.#links.map((link) => this.#persist(() => work(link), link.shard)));
  }

  #persist<Result>(work: () => Promise<Result>, shard: number): Promise<Result> {
    const { timeoutMs = 30_000, spec } = this.#options;
    return retry(work, {
      backoff: { baseMs: 20, maxMs: 1_000 },
      deadlineMs: timeoutMs,
      signal: this.#signal,
      isPassing: (error) => toAppError(error).retryable,
      onRetry: () => this.#retries++,
      lateError: (cause) => {
        const message = `shard ${shard} at ${spec.servers[shard]} has been unreachable for ${timeoutMs} ms`;
        const { message: why } = toAppError(cause);
        return new AppError("shard_unavailable", `${message}: ${why}`, { cause });
      },
    });
  }

  /** Servers need the norm only where the worker's part is a whole update. */
  #squares(part: Parameters): number {
    const { maxGradientNorm, consistency, parameters } = this.#options.spec;
    if (maxGradientNorm === undefined || consistency.kind === "bsp") return 0;
    let sum = 0;
    for (const { name } of parameters) for (const value of part[name] ?? []) sum += value * value;
    return sum;
  }

  #id(shard: number) {
    const { jobId, attempt } = this.#options.spec;
    return { jobId, attempt, shard };
  }

  #brief() {
    return { deadlineMs: STATUS_MS, signal: this.#signal };
  }
}
