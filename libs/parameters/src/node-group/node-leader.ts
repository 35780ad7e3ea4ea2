import { AppError, toAppError } from "@heddle/base/errors";
import { kernelMemory, loadKernels } from "@heddle/kernels/kernels";
import type { ParameterClient, Parameters, PushTerms } from "@heddle/training/parameter-client";
import { type DataAnswer, DataListener } from "../data-plane/data-listener.ts";
import { DataRoute } from "../data-plane/data-route.ts";
import { type Accumulator, PartAdder, STAGING_BYTES } from "../data-plane/part-adder.ts";
import type {
  ParameterServerClient,
  ParameterServerClientOptions,
} from "../parameter-server-client.ts";
import { checkPlan, checkTensors, planDigest } from "../shards/job-plan.ts";
import { type ShardLayout, slabPieces } from "../shards/shard-layout.ts";
import { type FollowerRequest, nodeLayout } from "./node-follower.ts";
import type { NodeGroup } from "./node-group.ts";

/** A task of the node that has not arrived by then is considered dead. */
const MEMBER_MS = 600_000;

/** The time that the others have to learn that this attempt has ended; a rollout takes less. */
const DISMISS_MS = 60_000;

interface Waiting extends FollowerRequest {
  readonly answer: PromiseWithResolvers<DataAnswer>;
}

/** The leading task of a node: sums the parts of all, in their order, and shares what it pulls. */
export class NodeLeader implements ParameterClient {
  readonly servers: ParameterServerClient;
  readonly #options: ParameterServerClientOptions;
  readonly #plan: string;
  readonly #members: number;
  readonly #layout: ShardLayout;
  readonly #accumulator: Accumulator;
  readonly #listener: DataListener;
  readonly #routes = new Map<number, DataRoute>();
  readonly #waiting = new Map<number, Waiting>();
  #wake: () => void = () => undefined;
  #clock = 0;
  #over: AppError | undefined;
  readonly #notified = new Set<number>();

  private constructor(
    client: ParameterServerClient,
    options: ParameterServerClientOptions,
    { members }: NodeGroup,
  ) {
    this.servers = client;
    this.#options = options;
    this.#plan = planDigest(options.spec);
    this.#members = members;
    this.#layout = nodeLayout(options);
    const { elements } = this.#layout;
    const memory = kernelMemory(elements * 4 + STAGING_BYTES);
    const kernels = loadKernels(memory);
    this.#accumulator = { memory, kernels, sums: 0, staging: elements * 4, elements };
    this.#listener = new DataListener({
      token: options.spec.jobToken,
      answer: (request) => this.#answer(request as FollowerRequest),
    });
  }

  static async start(
    client: ParameterServerClient,
    options: ParameterServerClientOptions,
    group: NodeGroup,
  ): Promise<NodeLeader> {
    const leader = new NodeLeader(client, options, group);
    await leader.#listener.listenUnix(group.socketPath);
    return leader;
  }

  async push(part: Parameters, terms: PushTerms): Promise<void> {
    this.#clock++;
    try {
      checkTensors(this.#options.spec, part);
      const others = await this.#all();
      const weight = others.reduce((sum, other) => sum + (other.weight ?? 0), terms.weight);
      const own = this.#adder(terms.weight / weight, true);
      own.begin({ version: 0, bytes: this.#layout.elements * 4 });
      for (const piece of slabPieces(this.#layout, part)) own.copy(piece);
      for (const other of others) await this.#add(other, weight);
      await this.servers.push(this.#sums(part), { ...terms, weight });
    } catch (error) {
      this.#refuse(error);
      throw error;
    }
  }

  async pull(into: Parameters): Promise<number> {
    try {
      const version = await this.servers.pull(into);
      const bytes = this.#layout.elements * 4;
      const others = await this.#all();
      this.#waiting.clear();
      const taken = others.map(({ answer }) => {
        const { promise, resolve } = Promise.withResolvers<void>();
        const pieces = slabPieces(this.#layout, into);
        answer.resolve({ version, bytes, pieces, release: resolve });
        return promise;
      });
      await Promise.all(taken);
      return version;
    } catch (error) {
      this.#refuse(error);
      throw error;
    }
  }

  /**
   * Notifies the other tasks of the node, now and when they ask, that the job has ended. Resolves
   * when each has been notified, or at the timeout.
   */
  async dismiss(): Promise<void> {
    this.#over = undefined;
    this.#refuse(
      new AppError("gone", "the job has ended: the leading task of this node has ended it"),
    );
    await this.#allNotified();
  }

  /**
   * Where a server was lost, the others of the node fail with that, not with a broken connection.
   */
  async close(): Promise<void> {
    if (this.#over?.code === "shard_unavailable") await this.#allNotified();
    this.#listener.close();
    for (const route of this.#routes.values()) route.close();
    await this.servers.close();
  }

  async #answer(request: FollowerRequest): Promise<DataAnswer> {
    checkPlan(this.#options.spec, this.#plan, request.plan);
    if (this.#over) {
      this.#notified.add(request.member);
      throw this.#over;
    }
    const answer = Promise.withResolvers<DataAnswer>();
    this.#waiting.set(request.member, { ...request, answer });
    this.#wake();
    return answer.promise;
  }

  /** All other tasks, in their order, when each has pushed as often as this one. */
  async #all(): Promise<readonly Waiting[]> {
    const late = AbortSignal.timeout(MEMBER_MS);
    const signal = AbortSignal.any([this.#options.signal, late]);
    const missing = () => this.#inStep().length < this.#members - 1;
    while (missing()) {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      this.#wake = resolve;
      const onAbort = () => {
        const come = `${this.#inStep().length + 1} of ${this.#members} tasks of this node`;
        reject(new AppError("unavailable", `only ${come} came to update ${this.#clock}`));
      };
      signal.addEventListener("abort", onAbort, { once: true });
      if (signal.aborted) onAbort();
      await promise.finally(() => signal.removeEventListener("abort", onAbort));
    }
    return this.#inStep();
  }

  #inStep(): readonly Waiting[] {
    return [...this.#waiting.values()]
      .filter(({ clock }) => clock === this.#clock)
      .sort((a, b) => a.member - b.member);
  }

  async #add(other: Waiting, weight: number): Promise<void> {
    const route = this.#routes.get(other.member) ?? new DataRoute();
    this.#routes.set(other.member, route);
    await route.fetch({
      targets: [other.source],
      token: this.#options.spec.jobToken,
      request: { shard: 0, clock: other.clock },
      sink: () => this.#adder((other.weight ?? 0) / weight, false),
      overGrpc: () => {
        throw new AppError("unavailable", "tasks of one node speak over unix sockets");
      },
      signal: this.#options.signal,
    });
  }

  #adder(weight: number, first: boolean): PartAdder {
    return new PartAdder(this.#accumulator, "none", weight, first);
  }

  /** A copy of the sums, in the part's shape. */
  #sums(part: Parameters): Parameters {
    const slab = new Float32Array(this.#accumulator.memory.buffer, 0, this.#layout.elements);
    const sums = Object.fromEntries(
      Object.entries(part).map(([name, { length }]) => [name, new Float32Array(length)]),
    );
    for (const { parameter, begin, end, offset } of this.#layout.segments) {
      sums[parameter]?.set(slab.subarray(offset, offset + end - begin), begin);
    }
    return sums;
  }

  /**
   * The others would wait forever for an update that failed; a later request receives the same
   * error.
   */
  #refuse(error: unknown): void {
    this.#over ??= toAppError(error);
    for (const { member, answer } of this.#waiting.values()) {
      answer.reject(this.#over);
      this.#notified.add(member);
    }
    this.#waiting.clear();
  }

  /** Resolves when all others have been notified, at the timeout, or when this task must leave. */
  async #allNotified(): Promise<void> {
    const { signal } = this.#options;
    const end = performance.now() + DISMISS_MS;
    const isLate = () => signal.aborted || performance.now() >= end;
    while (this.#notified.size < this.#members - 1 && !isLate()) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}
