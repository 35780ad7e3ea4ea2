import type { ClientDuplexStream } from "@grpc/grpc-js";
import { keepConnected } from "@heddle/base/async/keep-connected";
import { AppError, toAppError } from "@heddle/base/errors";
import {
  type DeploymentSpec,
  type EngineEvent,
  sequencesOf,
  type WeightsSpec,
} from "@heddle/contracts/engine";
import type { InferenceCommand } from "@heddle/contracts/generated/heddle/v1/InferenceCommand";
import type { InferenceEvents__Output } from "@heddle/contracts/generated/heddle/v1/InferenceEvents";
import type { ModelSize__Output } from "@heddle/contracts/generated/heddle/v1/ModelSize";
import type { PlanStagesRequest } from "@heddle/contracts/generated/heddle/v1/PlanStagesRequest";
import type { SizeModelRequest } from "@heddle/contracts/generated/heddle/v1/SizeModelRequest";
import type { StagePlan__Output } from "@heddle/contracts/generated/heddle/v1/StagePlan";
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { decodeEvent, encodeWork } from "@heddle/rpc/inference-codec";
import { encodeDeployment, encodeWeights } from "@heddle/rpc/node-codec";
import { Peer } from "@heddle/rpc/peer";
import {
  loadMethod,
  planStagesMethod,
  pullMethod,
  sessionMethod,
  sizeModelMethod,
  unloadMethod,
} from "@heddle/rpc/proto";
import { fromStatus } from "@heddle/rpc/status";
import type { PullProgress } from "./node-directory.ts";
import { type CallLoad, OpenLoad } from "./open-load.ts";
import type { InferenceCall } from "./replicas/ready-replica.ts";
import { EVENT_WINDOW, SessionCall } from "./session-call.ts";

const reconnect = { baseMs: 50, maxMs: 2_000 };
/** Load and Unload respond once the work has started. */
const COMMAND_DEADLINE_MS = 10_000;
/** A worker reads a model for 3 s before it answers that it is not done. */
const READ_DEADLINE_MS = 5_000;
/** A worker ends calls at their deadline itself; after this margin it counts as hung. */
const DEADLINE_GRACE_MS = 1_000;
/** A cancelled call counts as load until the worker confirms its end, at most this long. */
const CANCELLED_HOLD_MS = 5_000;
/** How long a worker may hold text that may come late. */
const HOLD_MS = 100;
/** The largest value of a uint32 field. */
const MAX_UINT32 = 2 ** 32 - 1;

interface OpenCall {
  readonly call: SessionCall;
  readonly load: CallLoad;
  /** The engine is finished; only the reader still has to take the rest. */
  isComputed: boolean;
  timer: NodeJS.Timeout | undefined;
}

export interface WorkerLinkOptions {
  readonly node: string;
  readonly address: string;
  readonly credentials: NodeCredentials;
  readonly log: Log;
  /** Called when the stream opens or closes and when a call has ended. */
  readonly onChange: () => void;
  readonly onLost: (calls: number) => void;
}

/**
 * The master's connection to one worker. One Session stream has all requests, opened for the first
 * replica and reopened with backoff when it breaks; unary calls load models.
 */
export class WorkerLink {
  readonly #options: WorkerLinkOptions;
  readonly #peer: Peer;
  readonly #closing = new AbortController();
  readonly #open = new Map<number, OpenCall>();
  /** The load of the open calls that the worker's engines compute. */
  readonly #load = new OpenLoad();
  #stream: ClientDuplexStream<InferenceCommand, InferenceEvents__Output> | undefined;
  #nextId = 1;
  #retired = false;
  #isOpened = false;

  constructor(options: WorkerLinkOptions) {
    this.#options = options;
    this.#peer = new Peer(options.address, options.credentials, "worker");
  }

  /** Opens the stream for requests, once: a worker without replicas needs none. */
  open(): void {
    if (this.#isOpened || this.closed) return;
    this.#isOpened = true;
    void this.#run();
  }

  /** Whether requests can be sent now. */
  get connected(): boolean {
    return this.#stream !== undefined && !this.#retired;
  }

  get address(): string {
    return this.#options.address;
  }

  /** This master's load on the worker's engines. */
  get taken(): Pick<OpenLoad, "sequences" | "calls" | "sequencesOf" | "yielding"> {
    return this.#load;
  }

  /** Sends a request; the call fails with `worker_lost` if the stream breaks before its end. */
  start(asked: InferenceCall, deadlineMs: number, signal: AbortSignal): SessionCall {
    const { node } = this.#options;
    const stream = this.#stream;
    if (!stream || this.#retired) {
      throw new AppError("unavailable", `no stream to worker ${node} stands`, { node });
    }
    const id = this.#freeId();
    const call = new SessionCall(id, node, this, signal);
    const timer =
      deadlineMs > 0 ? setTimeout(() => call.expire(), deadlineMs + DEADLINE_GRACE_MS) : undefined;
    const { deployment, fairKey, cacheSalt, priority, traceparent } = asked;
    const load = { deployment, fairKey, priority, sequences: sequencesOf(asked.request) };
    this.#open.set(id, { call, load, isComputed: false, timer });
    this.#load.add(load);
    stream.write({
      start: {
        id,
        deployment,
        ...encodeWork(asked.request),
        fairKey,
        cacheSalt,
        deadlineMs: Math.min(MAX_UINT32, Math.ceil(deadlineMs)),
        priority,
        window: EVENT_WINDOW,
        holdMs: asked.mayHold ? HOLD_MS : 0,
        traceparent,
      },
    });
    return call;
  }

  grant(id: number, events: number): void {
    if (this.#open.has(id)) this.#stream?.write({ grant: { id, events } });
  }

  cancel(id: number): void {
    const open = this.#open.get(id);
    if (!open) return;
    this.#stream?.write({ cancel: { id } });
    clearTimeout(open.timer);
    open.timer = setTimeout(() => this.#forget(id), CANCELLED_HOLD_MS);
    open.timer.unref();
  }

  /** `holders` are the addresses of workers that may have parts of a stage's weights. */
  async load(spec: DeploymentSpec, holders: readonly string[]): Promise<void> {
    const request = { deployment: encodeDeployment(spec), holders: [...holders] };
    const signal = this.#closing.signal;
    await this.#peer.unary(loadMethod, request, { deadlineMs: COMMAND_DEADLINE_MS, signal });
  }

  /** With a grace its open requests may end first. */
  async unload(deployment: string, graceMs = 0): Promise<void> {
    const signal = this.#closing.signal;
    const request = { deployment, graceMs };
    await this.#peer.unary(unloadMethod, request, { deadlineMs: COMMAND_DEADLINE_MS, signal });
  }

  /** Divides a model between workers; rejects with `model_loading` while the worker pulls it. */
  planStages(request: PlanStagesRequest): Promise<StagePlan__Output> {
    const signal = this.#closing.signal;
    return this.#peer.unary(planStagesMethod, request, { deadlineMs: READ_DEADLINE_MS, signal });
  }

  /** What the whole model takes in one worker; rejects with `unprocessable` where it cannot be divided. */
  sizeModel(request: SizeModelRequest): Promise<ModelSize__Output> {
    const signal = this.#closing.signal;
    return this.#peer.unary(sizeModelMethod, request, { deadlineMs: READ_DEADLINE_MS, signal });
  }

  pull(weights: WeightsSpec, signal: AbortSignal): AsyncIterable<PullProgress> {
    const request = { weights: encodeWeights(weights) };
    const either = AbortSignal.any([signal, this.#closing.signal]);
    return this.#peer.serverStream(pullMethod, request, either);
  }

  /** Takes no new requests; closes when the open ones have ended or the stream breaks. */
  retire(): void {
    this.#retired = true;
    if (this.#open.size === 0 || !this.#stream) this.close();
  }

  /** Takes requests again: the same process has reattached. False if the link is closed. */
  reinstate(): boolean {
    if (this.closed) return false;
    this.#retired = false;
    return true;
  }

  get closed(): boolean {
    return this.#closing.signal.aborted;
  }

  close(): void {
    if (this.closed) return;
    this.#closing.abort();
    this.#stream?.cancel();
    this.#onBroken("the link was closed");
    this.#peer.close();
  }

  #run(): Promise<void> {
    const { node, log } = this.#options;
    return keepConnected({
      backoff: reconnect,
      signal: this.#closing.signal,
      connect: (onOpen) => this.#session(onOpen),
      onEnd: ({ message: error }) => {
        if (this.#retired) this.close();
        else log.warn({ node, error }, "the stream to a worker broke, reconnecting");
      },
    });
  }

  /** Opens the stream; resolves with the reason when it has ended. */
  #session(onOpen: () => void): Promise<AppError> {
    const stream = this.#peer.duplex(sessionMethod);
    const { promise, resolve } = Promise.withResolvers<AppError>();
    const end = (error: AppError) => {
      this.#onBroken(error.message);
      resolve(error);
    };
    stream.on("metadata", () => {
      this.#stream = stream;
      onOpen();
      this.#options.onChange();
    });
    stream.on("data", (frame: InferenceEvents__Output) => this.#receive(frame));
    stream.on("error", (error) => end(fromStatus(error, this.#options.address)));
    stream.on("end", () => {
      stream.end();
      end(new AppError("unavailable", "the worker closed the stream"));
    });
    return promise;
  }

  #receive(frame: InferenceEvents__Output): void {
    for (const message of frame.events) {
      const open = this.#open.get(message.id);
      if (!open) continue;
      const event = this.#decode(message, open.call);
      if (!event) continue;
      open.call.deliver(event);
      if (event.type === "done" || event.type === "failed") this.#forget(message.id);
    }
    for (const id of frame.computed) this.#onComputed(id);
  }

  #decode(
    message: InferenceEvents__Output["events"][number],
    call: SessionCall,
  ): EngineEvent | undefined {
    try {
      return decodeEvent(message);
    } catch (error) {
      const { code, message: text } = toAppError(error);
      call.fail({ code, message: text });
      this.cancel(message.id);
      return undefined;
    }
  }

  /** Its slots are free, however slow its reader. */
  #onComputed(id: number): void {
    const open = this.#open.get(id);
    if (!open || open.isComputed) return;
    open.isComputed = true;
    this.#load.remove(open.load);
    this.#options.onChange();
  }

  #forget(id: number): void {
    const open = this.#open.get(id);
    if (!open) return;
    clearTimeout(open.timer);
    this.#open.delete(id);
    if (!open.isComputed) this.#load.remove(open.load);
    if (this.#retired && this.#open.size === 0) this.close();
    this.#options.onChange();
  }

  #onBroken(reason: string): void {
    this.#stream = undefined;
    const calls = [...this.#open.values()];
    this.#open.clear();
    this.#load.clear();
    let lost = 0;
    for (const { call, timer } of calls) {
      clearTimeout(timer);
      if (!call.ended) lost += 1;
      const message = `worker ${this.#options.node} was lost before the answer was complete: ${reason}`;
      call.fail({ code: "worker_lost", message });
    }
    if (lost > 0) this.#options.onLost(lost);
    this.#options.onChange();
  }

  /** Ids are uint32 and wrap around; those still open are skipped. */
  #freeId(): number {
    while (this.#open.has(this.#nextId)) this.#nextId = (this.#nextId % MAX_UINT32) + 1;
    const id = this.#nextId;
    this.#nextId = (id % MAX_UINT32) + 1;
    return id;
  }
}
