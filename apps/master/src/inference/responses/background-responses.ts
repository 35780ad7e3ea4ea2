import { orAborted } from "@heddle/base/async/or-aborted";
import { type AppError, toAppError } from "@heddle/base/errors";
import type { ResponseRequest } from "@heddle/contracts/api/responses/request";
import type { Logger } from "@heddle/observability/logger";
import { Inject, type OnApplicationShutdown } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { LOGGER } from "../../config/config.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import type { DocumentPlace } from "../../documents/documents.ts";
import type { CallerRequest } from "../../http/access.ts";
import { type DetachedRun, DetachedRuns, savedOrNewer } from "../detached-runs.ts";
import { InferenceCalls } from "../inference-calls.ts";
import type { Piece } from "./pieces.ts";
import {
  failureOutcome,
  type Outcome,
  outcomeOf,
  type ResponseUpdate,
} from "./response-builder.ts";
import { type PreparedResponse, ResponseGeneration } from "./response-generation.ts";
import type { ResponseSource } from "./response-source.ts";
import { type KeptResponse, ResponseStore, type StoredResponse, shown } from "./response-store.ts";
import { ResponseStreams } from "./response-streams.ts";

/** Pieces of one progress: it goes to other masters as one message. */
const MAX_PROGRESS_PIECES = 64;

/** A response in the background, while it runs on this master. */
export class RunningResponse implements ResponseSource, DetachedRun {
  readonly prepared: PreparedResponse;
  readonly abort: AbortController;
  /** The version of the stored response without an outcome. */
  readonly version: number;
  hasBegun = false;
  outcome: Outcome | undefined;
  isEnding = false;
  readonly ended = Promise.withResolvers<void>();
  #change = Promise.withResolvers<void>();

  constructor(prepared: PreparedResponse, abort: AbortController, version: number) {
    this.prepared = prepared;
    this.abort = abort;
    this.version = version;
  }

  get head() {
    return this.prepared.head;
  }

  get pieces(): readonly Piece[] {
    return this.prepared.journal.pieces;
  }

  get stored(): StoredResponse {
    const { head, input } = this.prepared;
    const { hasBegun, pieces, outcome } = this;
    return { head, input, hasBegun, pieces, outcome };
  }

  notify(): void {
    this.#change.resolve();
    this.#change = Promise.withResolvers();
  }

  /** After the first `from` pieces; `isCurrent` where that is all there is now. */
  async *progress(signal: AbortSignal, from = 0): AsyncGenerator<RunningUpdate, void> {
    for (let at = from; ; ) {
      const change = this.#change.promise;
      const pieces = this.pieces.slice(at, at + MAX_PROGRESS_PIECES);
      at += pieces.length;
      const isCurrent = at >= this.pieces.length;
      const outcome = isCurrent ? this.outcome : undefined;
      yield { hasBegun: this.hasBegun, pieces, outcome, isCurrent };
      if (outcome) return;
      if (isCurrent) await orAborted(change, signal);
      signal.throwIfAborted();
    }
  }
}

interface RunningUpdate extends ResponseUpdate {
  readonly isCurrent: boolean;
}

/**
 * Responses with `background`. One is stored before it is answered and again at its end. It is not
 * run again when its master is lost: its tokens were paid for, and its events may have been read.
 */
export class BackgroundResponses implements OnApplicationShutdown {
  readonly #calls: InferenceCalls;
  readonly #generation: ResponseGeneration;
  readonly #store: ResponseStore;
  readonly #streams: ResponseStreams;
  readonly #log: Logger;
  readonly #running: DetachedRuns<RunningResponse>;

  constructor(
    @Inject(InferenceCalls) calls: InferenceCalls,
    @Inject(ResponseGeneration) generation: ResponseGeneration,
    @Inject(ResponseStore) store: ResponseStore,
    @Inject(ResponseStreams) streams: ResponseStreams,
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(LOGGER) log: Logger,
  ) {
    this.#calls = calls;
    this.#generation = generation;
    this.#store = store;
    this.#streams = streams;
    this.#log = log;
    this.#running = new DetachedRuns(control, "response");
  }

  onApplicationShutdown(): void {
    this.#running.close();
  }

  /** Starts the response, and answers with it or with its events. */
  async answer(http: CallerRequest, reply: FastifyReply, request: ResponseRequest): Promise<void> {
    this.#running.expectRoom();
    let running: RunningResponse | undefined;
    const prepared = await this.#calls.detach(
      reply,
      async (abort) => {
        running = await this.#begin(http, reply, request, abort);
        return running.prepared;
      },
      (_, signal) => this.#run(http, running as RunningResponse, signal),
      (_, failure) => this.#end(running as RunningResponse, failure),
    );
    const source = running as RunningResponse;
    if (request.stream !== true) {
      this.#calls.send(http, reply, prepared, JSON.stringify(shown(source.stored)));
      return;
    }
    const isPadded = request.stream_options?.include_obfuscation === true;
    await this.#streams.send(http, reply, source, { isPadded, headers: prepared.headers });
  }

  /** The response, while it runs here; another master that asks has checked the project. */
  find(
    id: string,
    { owner, project }: Pick<DocumentPlace, "owner"> & Partial<DocumentPlace>,
  ): RunningResponse | undefined {
    const running = this.#running.get(id);
    const { place } = running?.prepared ?? {};
    if (place?.owner !== owner || (project !== undefined && place.project !== project)) {
      return undefined;
    }
    return running;
  }

  /** Cancels a response, wherever it runs; one that has ended stays as it is. */
  async cancel(place: DocumentPlace, { stored, version }: KeptResponse): Promise<StoredResponse> {
    if (stored.outcome) return stored;
    const { id } = stored.head;
    const running = this.find(id, place);
    if (running) {
      running.abort.abort(this.#running.cancelled());
      await running.ended.promise;
      return running.stored;
    }
    const outcome = failureOutcome(this.#running.cancelled(), NO_USAGE);
    const ended = { ...stored, outcome };
    return savedOrNewer(
      async () => {
        await this.#store.save(place, ended, version);
        return ended;
      },
      async () => (await this.#store.get(place, id)).stored,
    );
  }

  async #begin(
    http: CallerRequest,
    reply: FastifyReply,
    request: ResponseRequest,
    abort: AbortController,
  ): Promise<RunningResponse> {
    const prepared = await this.#generation.prepare(http, reply, request, abort);
    const { place, head, input } = prepared;
    this.#store.running.add(head.id);
    try {
      const begun = { head, input, hasBegun: false, pieces: [] };
      const version = await this.#store.save(place, begun, 0);
      const running = new RunningResponse(prepared, abort, version);
      this.#running.add(head.id, running);
      return running;
    } catch (thrown) {
      this.#store.running.delete(head.id);
      const failure = toAppError(thrown);
      prepared.call.close(failure);
      throw failure;
    }
  }

  async #run(http: CallerRequest, running: RunningResponse, signal: AbortSignal): Promise<void> {
    const { prepared } = running;
    const answer = await this.#generation.start(http, prepared, signal);
    running.hasBegun = true;
    running.notify();
    const finish = await this.#generation.generate(prepared, answer, () => running.notify());
    await this.#settle(running, outcomeOf(finish, prepared.call.usage));
  }

  #end(running: RunningResponse, failure: AppError): Promise<void> {
    return this.#settle(running, failureOutcome(failure, running.prepared.call.usage));
  }

  /** Stores the end, then shows it. A change by another master is later than the begin and wins. */
  async #settle(running: RunningResponse, outcome: Outcome): Promise<void> {
    running.isEnding = true;
    const { id } = running.head;
    try {
      const { prepared, hasBegun, version: expectedVersion } = running;
      await this.#generation.keep(prepared, outcome, { hasBegun, expectedVersion });
      running.outcome = outcome;
    } catch (thrown) {
      running.outcome = await this.#unstored(running, toAppError(thrown));
    }
    this.#running.delete(id);
    this.#store.running.delete(id);
    running.notify();
    running.ended.resolve();
  }

  /** The outcome that another master stored, or why there is none. */
  async #unstored(running: RunningResponse, error: AppError): Promise<Outcome> {
    const { id } = running.head;
    const { place, call } = running.prepared;
    if (error.code !== "precondition_failed") {
      this.#log.warn({ id, error }, "the end of a response could not be stored");
      return failureOutcome(error, call.usage);
    }
    const kept = await this.#store.find(place, id).catch(() => undefined);
    return kept?.stored.outcome ?? failureOutcome(this.#running.cancelled(), call.usage);
  }
}

const NO_USAGE = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
