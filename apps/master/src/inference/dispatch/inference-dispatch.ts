import { OncePerTurn } from "@heddle/base/async/once-per-turn";
import type { Clock } from "@heddle/base/clock";
import { AppError, type ErrorCode } from "@heddle/base/errors";
import type { Random } from "@heddle/base/random";
import { outranks, priorityNumber, priorityOf } from "@heddle/contracts/call-priority";
import {
  type EngineEvent,
  type EngineFailure,
  type EngineRequest,
  sequencesOf,
} from "@heddle/contracts/engine";
import type {
  InferenceCall,
  ReadyReplica,
  ReplicaSource,
} from "../../nodes/replicas/ready-replica.ts";
import { CallAttempts } from "./call-attempts.ts";
import { Circuit } from "./circuit.ts";
import { FairQueue } from "./fair-queue.ts";
import { FirstTokenTimes } from "./first-token-times.ts";
import type {
  CallWait,
  DispatchLoad,
  DispatchStats,
  InferenceAnswer,
  InferenceDispatch,
  QueueStats,
  WaitView,
} from "./inference-port.ts";
import { type Begun, LiveAnswer } from "./live-answer.ts";
import { PrefixIndex, promptChunks } from "./prefix-index.ts";
import { allFull, chooseReplica, knowsAll, suited, unknownTo } from "./routing.ts";

export interface DispatchOptions {
  readonly replicas: ReplicaSource;
  readonly clock: Clock;
  readonly random: Random;
  /** Queue length per deployment. It may change; what waits beyond it stays. */
  readonly maxQueued: number;
  /** Maximum wait for a slot, and for a replica that is loading. */
  readonly maxWaitMs: number;
  readonly maxLoadingWaitMs: number;
}

/** Chunks kept per deployment: 4 million characters. */
const MAX_PREFIX_CHUNKS = 65_536;

/** Below the longest delay of a timer; the call's deadline is sooner. */
const LONGEST_WAIT_MS = 86_400_000;

interface Waiter {
  readonly fairKey: string;
  readonly priority: number;
  readonly arrivedMs: number;
  /** Sends the call if a replica has room. */
  readonly place: () => boolean;
  readonly fail: (error: AppError) => void;
}

interface Started {
  readonly replica: ReadyReplica;
  readonly iterator: AsyncIterator<EngineEvent>;
}

/** One call on its way to a replica. */
interface Trip {
  readonly call: InferenceCall;
  readonly chunks: () => readonly number[];
  readonly endMs: number;
  readonly attempts: CallAttempts;
  readonly signal: AbortSignal;
  readonly wait: CallWait | undefined;
}

/** State per deployment. */
interface Lane {
  readonly queue: FairQueue<Waiter>;
  /** Calls to be retried: they wait for a report and block no call that waits for room. */
  readonly retries: Set<Waiter>;
  readonly prefixes: PrefixIndex;
  readonly firstTokens: FirstTokenTimes;
  /** Keyed by holder; entries of removed replicas are dropped from time to time. */
  readonly replicas: Map<string, { readonly circuit: Circuit; chosenAtTurn: number }>;
}

/** Sends inference calls to replicas: routing, queues, retries, circuit breakers. */
export class ReplicaDispatch implements InferenceDispatch {
  readonly #options: DispatchOptions;
  readonly #lanes = new Map<string, Lane>();
  readonly #unsubscribe: () => void;
  readonly #stats = { started: 0, retries: 0, continued: 0, overloaded: 0 };
  #turn = 0;
  /** One pass over the queues per turn of the event loop. */
  readonly #nextDrain = new OncePerTurn(() => {
    for (const [deployment, lane] of this.#lanes) {
      this.#drain(deployment, lane);
      this.#tidy(deployment, lane);
    }
  });

  constructor(options: DispatchOptions) {
    this.#options = options;
    this.#unsubscribe = options.replicas.onChange(() => this.#nextDrain.request());
  }

  stats(): DispatchStats {
    let queued = 0;
    for (const lane of this.#lanes.values()) queued += waiting(lane);
    return { queued, ...this.#stats };
  }

  close(): void {
    this.#unsubscribe();
    const error = new AppError("unavailable", "this master is shutting down");
    for (const lane of this.#lanes.values()) {
      for (const waiter of tickets(lane)) waiter.fail(error);
    }
  }

  queues(): QueueStats[] {
    return [...this.#lanes].flatMap(([deployment, lane]) => {
      const waiters = tickets(lane);
      return waiters.length > 0 ? [queueStats(deployment, waiters, this.#nowMs())] : [];
    });
  }

  loadOf(deployment: string): DispatchLoad {
    const lane = this.#lanes.get(deployment);
    if (!lane) return { queued: 0, ttftMs: undefined };
    return { queued: waiting(lane), ttftMs: lane.firstTokens.high(this.#nowMs()) };
  }

  async start(call: InferenceCall, signal: AbortSignal, wait?: CallWait): Promise<InferenceAnswer> {
    const chunks = once(() => chunksOf(call));
    const endMs = call.deadlineMs > 0 ? this.#nowMs() + call.deadlineMs : Number.POSITIVE_INFINITY;
    const attempts = new CallAttempts();
    const startedMs = this.#nowMs();
    const trip = { call, chunks, endMs, attempts, signal, wait };
    const begun = await this.#begin(trip);
    this.#stats.started += 1;
    // A call of the lowest priority is meant to wait.
    const isTimed = priorityOf(call.priority) !== "batch";
    return new LiveAnswer(call.request, begun, {
      onEnd: (replica, code) => this.#onEnd(call, replica, code),
      onToken: () => {
        const nowMs = this.#nowMs();
        if (isTimed) this.#lane(call.deployment).firstTokens.add(nowMs - startedMs, nowMs);
      },
      proceed: (lost, failure, rest) => this.#proceed(trip, lost, failure, rest),
    });
  }

  /** Sends the call to one replica after another until one begins to answer. */
  async #begin(trip: Trip): Promise<Begun> {
    const { call, attempts, signal } = trip;
    for (;;) {
      const { replica, iterator } = await this.#acquire(trip);
      if (attempts.last) this.#stats.retries += 1;
      const first = await iterator.next();
      const event: EngineEvent = first.done ? missingEnd : first.value;
      if (event.type !== "failed") {
        this.#circuitOf(call, replica).onStarted();
        return { replica, first: event, rest: iterator };
      }
      const failure = event.error;
      this.#onEnd(call, replica, failure.code);
      const mayRetry = attempts.onFailure(replica, failure, this.#reportsOf(call, replica));
      if (!mayRetry || signal.aborted) throw this.#refusal(call, failure, replica.node);
    }
  }

  /** Sends the rest of an answer whose replica failed to another one. */
  async #proceed(
    trip: Trip,
    lost: ReadyReplica,
    failure: EngineFailure,
    request: EngineRequest,
  ): Promise<Begun | undefined> {
    const { call, attempts, signal } = trip;
    const mayRetry = attempts.onFailure(lost, failure, this.#reportsOf(call, lost));
    if (!mayRetry || signal.aborted) return undefined;
    const begun = await this.#begin({ ...trip, call: { ...call, request } });
    this.#stats.continued += 1;
    return begun;
  }

  /** Resolves once the call was sent to an untried replica. */
  async #acquire(trip: Trip): Promise<Started> {
    const { call, attempts, signal } = trip;
    if (signal.aborted) throw new AppError("cancelled", "the caller cancelled the request");
    const lane = this.#lane(call.deployment);
    const send = () => this.#send(lane, trip);
    const started = attempts.last || lane.queue.size === 0 ? send() : undefined;
    if (started) return started;
    this.#refuseHopeless(call.deployment);
    const tooOld = unknownTo(this.#suited(call), call.request, call.deployment);
    if (tooOld) throw tooOld;
    return this.#wait(lane, trip, send);
  }

  #wait(lane: Lane, trip: Trip, send: () => Started | undefined): Promise<Started> {
    const { call, endMs, attempts, signal, wait } = trip;
    const { promise, resolve, reject } = Promise.withResolvers<Started>();
    const waiter: Waiter = {
      fairKey: call.fairKey,
      priority: call.priority,
      arrivedMs: this.#nowMs(),
      place: () => {
        const started = send();
        if (started) leave(() => resolve(started));
        else this.#giveUpVain(call, attempts, waiter);
        return started !== undefined;
      },
      fail: (error) => leave(() => reject(error)),
    };
    const onAbort = () =>
      waiter.fail(new AppError("cancelled", "the caller cancelled the request while it waited"));
    const leftMs = endMs - this.#nowMs();
    const limitMs = this.#waitLimitMs(call);
    const onWaited = () => {
      const isLate = leftMs <= limitMs;
      waiter.fail(isLate ? pastDeadline() : this.#onWaitedTooLong(call, attempts, limitMs));
    };
    const timer = setTimeout(onWaited, Math.min(limitMs, leftMs));
    let endWait: (() => void) | undefined;
    const leave = (settle: () => void) => {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      endWait?.();
      if (!lane.retries.delete(waiter)) lane.queue.remove(waiter);
      settle();
    };
    signal.addEventListener("abort", onAbort, { once: true });
    if (waiting(lane) >= this.#options.maxQueued) {
      const error = this.#overloaded(call, "its queue is full");
      const crowding = lane.queue.crowding(waiter.fairKey, waiter.priority);
      (crowding ?? waiter).fail(error);
      if (!crowding) return promise;
    }
    if (attempts.last) lane.retries.add(waiter);
    else lane.queue.push(waiter);
    endWait = wait?.begin(() => this.#viewOf(lane, call.deployment, waiter));
    this.#nextDrain.request();
    return promise;
  }

  /** Chooses a replica with room and sends the call; undefined if none has room. */
  #send(lane: Lane, { call, chunks, endMs, attempts, signal }: Trip): Started | undefined {
    const nowMs = this.#nowMs();
    const { fairKey, priority, place } = call;
    const ready = this.#suited(call);
    // With one replica there is no choice, and hashing a long prompt would be wasted.
    const prefix = ready.length > 1 ? chunks() : [];
    const candidates = ready
      .filter((each) => knowsAll(each, call.request) && attempts.mayTry(each))
      .filter(({ holder }) => this.#known(lane, holder).circuit.allows(nowMs));
    const prompt = { chunks: prefix.length, matched: lane.prefixes.match(prefix) };
    const replica = chooseReplica(
      candidates,
      { sequences: sequencesOf(call.request), fairKey, priority, place },
      prompt,
      ({ holder }) => this.#known(lane, holder).chosenAtTurn,
    );
    if (!replica) return undefined;
    const deadlineMs = Number.isFinite(endMs) ? Math.max(1, endMs - nowMs) : 0;
    const events = replica.start(call, deadlineMs, signal);
    if (place) place.holder = replica.holder;
    this.#turn += 1;
    const known = this.#known(lane, replica.holder);
    known.chosenAtTurn = this.#turn;
    known.circuit.onSent();
    lane.prefixes.remember(prefix, replica.holder);
    return { replica, iterator: events[Symbol.asyncIterator]() };
  }

  #onEnd(call: InferenceCall, replica: ReadyReplica, code: ErrorCode | undefined): void {
    const circuit = this.#circuitOf(call, replica);
    if (code === undefined) circuit.onSuccess();
    else if (code === "engine_failed" || code === "server_error") {
      circuit.onFailure(this.#nowMs());
      const waitMs = circuit.opensAtMs - this.#nowMs();
      if (waitMs > 0) setTimeout(() => this.#nextDrain.request(), waitMs).unref();
    } else circuit.onNeutral();
  }

  #drain(deployment: string, lane: Lane): void {
    for (const waiter of lane.retries) waiter.place();
    lane.queue.age(this.#nowMs());
    while (this.#placeOne(deployment, lane));
    if (waiting(lane) === 0) return;
    try {
      this.#refuseHopeless(deployment);
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      for (const waiter of tickets(lane)) waiter.fail(error);
    }
  }

  /** Sends the first call in turn that has room: a key that has used its share blocks no other. */
  #placeOne(deployment: string, { queue }: Lane): boolean {
    const first = queue.peek();
    if (!first) return false;
    if (first.place()) return true;
    if (allFull(this.#options.replicas.ready(deployment))) return false;
    return queue.heads().some((waiter) => waiter !== first && waiter.place());
  }

  /** Throws if waiting cannot help: the deployment is unknown, or nothing will load it. */
  #refuseHopeless(deployment: string): void {
    if (this.#options.replicas.ready(deployment).length > 0) return;
    const outlook = this.#options.replicas.outlook(deployment);
    if (outlook.loading) return;
    const state = outlook.broken ? "model_failed" : "unavailable";
    const code = outlook.known ? state : "model_not_found";
    throw new AppError(code, outlook.message, { model: deployment });
  }

  #suited({ deployment, request }: InferenceCall): readonly ReadyReplica[] {
    return suited(this.#options.replicas.ready(deployment), request);
  }

  /** The present count of reports of the replica's node. */
  #reportsOf(call: InferenceCall, { holder, reports }: ReadyReplica): number {
    const ready = this.#options.replicas.ready(call.deployment);
    return ready.find((replica) => replica.holder === holder)?.reports ?? reports;
  }

  #giveUpVain(call: InferenceCall, attempts: CallAttempts, waiter: Waiter): void {
    const ready = this.#suited(call);
    const tooOld = unknownTo(ready, call.request, call.deployment);
    const last = attempts.finalFailure(ready);
    if (tooOld) waiter.fail(tooOld);
    else if (last) waiter.fail(this.#refusal(call, last.failure, last.node));
  }

  /** Calls of the lowest priority wait for their turn as long as their deadline permits. */
  #waitLimitMs({ deployment, priority }: InferenceCall): number {
    const { maxWaitMs, maxLoadingWaitMs } = this.#options;
    if (outranks(priorityNumber("normal"), priority)) return LONGEST_WAIT_MS;
    if (this.#options.replicas.ready(deployment).length > 0) return maxWaitMs;
    const { isPatient } = this.#options.replicas.outlook(deployment);
    return isPatient ? LONGEST_WAIT_MS : maxLoadingWaitMs;
  }

  #viewOf(lane: Lane, deployment: string, waiter: Waiter): WaitView {
    const { queue, retries } = lane;
    const position = queue.positionOf(waiter);
    const view = {
      position: position === undefined ? 1 : retries.size + position,
      waiting: waiting(lane),
      waitedMs: Math.round(this.#nowMs() - waiter.arrivedMs),
    };
    if (this.#options.replicas.ready(deployment).length > 0) return { ...view, state: "queued" };
    const { message: detail, pulledBytes, totalBytes } = this.#options.replicas.outlook(deployment);
    return { ...view, state: "loading", detail, pulledBytes, totalBytes };
  }

  /** The reason is why no replica takes the call at present. */
  #onWaitedTooLong(call: InferenceCall, attempts: CallAttempts, waitedMs: number): AppError {
    const ready = this.#suited(call);
    if (ready.length === 0) {
      const { message } = this.#options.replicas.outlook(call.deployment);
      const retryAfterMs = this.#options.maxLoadingWaitMs;
      return new AppError("model_loading", message, { model: call.deployment, retryAfterMs });
    }
    const open = ready.filter((replica) => attempts.mayTry(replica));
    if (attempts.last && open.length === 0) {
      return this.#refusal(call, attempts.last.failure, attempts.last.node);
    }
    const circuits = open.map((replica) => this.#circuitOf(call, replica));
    const nowMs = this.#nowMs();
    if (circuits.some((circuit) => circuit.allows(nowMs))) {
      return this.#overloaded(call, `no replica had room within ${waitedMs} ms`);
    }
    return this.#resting(call, Math.min(...circuits.map(({ opensAtMs }) => opensAtMs - nowMs)));
  }

  /** No replica may be tried: the circuits of all are open. */
  #resting({ deployment: model }: InferenceCall, leftMs: number): AppError {
    this.#stats.overloaded += 1;
    const message = `every replica of ${model} failed several requests in a row and gets one request at a time until one succeeds`;
    const retryAfterMs = Math.max(1_000, leftMs);
    return new AppError("unavailable", message, { model, retryAfterMs });
  }

  #overloaded(call: InferenceCall, why: string): AppError {
    this.#stats.overloaded += 1;
    const message = `${call.deployment} has more requests than it can take: ${why}`;
    const retryAfterMs = this.#retryAfterMs(call.deployment);
    return new AppError("overloaded", message, { model: call.deployment, retryAfterMs });
  }

  /** One second per full load of all replicas in the queue; 1 to 30 seconds. */
  #retryAfterMs(deployment: string): number {
    let slots = 0;
    for (const replica of this.#options.replicas.ready(deployment)) slots += replica.maxSequences;
    const rounds = Math.ceil((waiting(this.#lane(deployment)) + 1) / Math.max(1, slots));
    return 1_000 * Math.min(30, rounds);
  }

  #refusal(call: InferenceCall, failure: EngineFailure, node: string): AppError {
    const { code, message, param } = failure;
    const retryAfterMs = code === "overloaded" ? this.#retryAfterMs(call.deployment) : undefined;
    return new AppError(code, message, { param, node, retryAfterMs, model: call.deployment });
  }

  #lane(deployment: string): Lane {
    let lane = this.#lanes.get(deployment);
    if (!lane) {
      lane = {
        queue: new FairQueue(),
        retries: new Set(),
        prefixes: new PrefixIndex(MAX_PREFIX_CHUNKS),
        firstTokens: new FirstTokenTimes(),
        replicas: new Map(),
      };
      this.#lanes.set(deployment, lane);
    }
    return lane;
  }

  #circuitOf(call: InferenceCall, replica: ReadyReplica): Circuit {
    return this.#known(this.#lane(call.deployment), replica.holder).circuit;
  }

  #known(lane: Lane, holder: string): { readonly circuit: Circuit; chosenAtTurn: number } {
    let known = lane.replicas.get(holder);
    if (!known) {
      known = { circuit: new Circuit(this.#options.random), chosenAtTurn: 0 };
      lane.replicas.set(holder, known);
    }
    return known;
  }

  /** Drops the state of removed deployments and replicas. */
  #tidy(deployment: string, lane: Lane): void {
    if (waiting(lane) > 0) return;
    const ready = this.#options.replicas.ready(deployment);
    if (ready.length === 0 && !this.#options.replicas.outlook(deployment).known) {
      this.#lanes.delete(deployment);
    } else if (lane.replicas.size > 2 * ready.length + 16) {
      const holders = new Set(ready.map(({ holder }) => holder));
      for (const holder of lane.replicas.keys()) {
        if (!holders.has(holder)) lane.replicas.delete(holder);
      }
    }
  }

  #nowMs(): number {
    return this.#options.clock.monotonicMs();
  }
}

/** All waiting calls. */
function waiting({ queue, retries }: Lane): number {
  return queue.size + retries.size;
}

function tickets({ queue, retries }: Lane): Waiter[] {
  return [...retries, ...queue.tickets()];
}

function queueStats(deployment: string, waiters: readonly Waiter[], nowMs: number): QueueStats {
  const byPriority = { batch: 0, normal: 0, interactive: 0 };
  let longestWaitMs = 0;
  for (const { priority, arrivedMs } of waiters) {
    byPriority[priorityOf(priority)]++;
    longestWaitMs = Math.max(longestWaitMs, nowMs - arrivedMs);
  }
  return { deployment, waiting: waiters.length, byPriority, longestWaitMs };
}

function pastDeadline(): AppError {
  return new AppError("deadline_exceeded", "the deadline passed while the request waited");
}

const missingEnd: EngineEvent = {
  type: "failed",
  id: 0,
  error: { code: "server_error", message: "the worker ended the answer without a last event" },
};

/** Inputs to embed are computed whole wherever they go, and those to read not at all. */
function chunksOf({ request, cacheSalt }: InferenceCall): number[] {
  return request.kind === undefined ? promptChunks(request.input, cacheSalt) : [];
}

function once<T>(compute: () => T): () => T {
  let value: { readonly of: T } | undefined;
  return () => {
    value ??= { of: compute() };
    return value.of;
  };
}
