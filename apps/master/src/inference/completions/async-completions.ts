import { createHash } from "node:crypto";
import { AppError, toAppError } from "@heddle/base/errors";
import { type AsyncCompletion, parseCompletionRequest } from "@heddle/contracts/api/completions";
import type { Logger } from "@heddle/observability/logger";
import { Inject, type OnApplicationShutdown } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { LOGGER } from "../../config/config.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import type { DocumentPlace } from "../../documents/documents.ts";
import type { CallerRequest } from "../../http/access.ts";
import { idempotencyKeyOf } from "../../http/idempotent-changes.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { canonicalJson, parseJsonBody } from "../../http/json-body.ts";
import { uniqueSuffix } from "../../http/request-id.ts";
import { type DetachedRun, DetachedRuns, savedOrNewer } from "../detached-runs.ts";
import { fingerprintOf, InferenceCalls } from "../inference-calls.ts";
import {
  CompletionStore,
  completionView,
  idUnder,
  type KeptCompletion,
  type StoredCompletion,
} from "./completion-store.ts";
import { type PreparedCompletion, TextCompletions } from "./text-completions.ts";

const POLL_S = "1";

interface Running extends DetachedRun {
  readonly place: DocumentPlace;
  readonly begun: StoredCompletion;
  readonly version: number;
  /** As it ended. */
  readonly ended: Promise<StoredCompletion>;
  readonly resolve: (ended: StoredCompletion) => void;
}

interface CompletionName {
  readonly place: DocumentPlace;
  readonly id: string;
  /** A hash of the request. */
  readonly request: string;
}

/** Whether the caller asks for an answer that it polls (RFC 7240). */
export function prefersAsync({ headers }: CallerRequest): boolean {
  const asked = [headers["prefer"] ?? []].flat().join(",").split(/[,;]/);
  return asked.some((each) => each.trim().toLowerCase() === "respond-async");
}

/** Completions with `Prefer: respond-async`: stored before they are answered, and at their end. */
export class AsyncCompletions implements OnApplicationShutdown {
  readonly #calls: InferenceCalls;
  readonly #completions: TextCompletions;
  readonly #store: CompletionStore;
  readonly #log: Logger;
  readonly #running: DetachedRuns<Running>;

  constructor(
    @Inject(InferenceCalls) calls: InferenceCalls,
    @Inject(TextCompletions) completions: TextCompletions,
    @Inject(CompletionStore) store: CompletionStore,
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(LOGGER) log: Logger,
  ) {
    this.#calls = calls;
    this.#completions = completions;
    this.#store = store;
    this.#log = log;
    this.#running = new DetachedRuns(control, "completion");
  }

  onApplicationShutdown(): void {
    this.#running.close();
  }

  /** Starts one and answers 202; a retry with the same `Idempotency-Key` gets the same answer. */
  async answer(http: CallerRequest, reply: FastifyReply): Promise<void> {
    const body = http.body as Buffer;
    if (parseCompletionRequest(parseJsonBody(body)).stream === true) {
      const message = "Invalid value for 'stream': an answer that is polled has no stream.";
      throw new AppError("invalid_value", message, { param: "stream" });
    }
    const place = this.#store.placeOf(requestCaller(http));
    const key = idempotencyKeyOf(http);
    const id = key === undefined ? `cmpl-${uniqueSuffix()}` : idUnder(place, key);
    const request = createHash("sha256").update(canonicalJson(body)).digest("hex");
    const known = key === undefined ? undefined : await this.#store.find(place, id);
    if (known) return replay(reply, known, request);
    try {
      await this.#start(http, reply, { place, id, request });
    } catch (thrown) {
      const isTaken = toAppError(thrown).code === "precondition_failed";
      const first = isTaken ? await this.#store.find(place, id) : undefined;
      if (!first) throw thrown;
      await replay(reply, first, request);
    }
  }

  /** One of this key as it is now. */
  async retrieve(http: CallerRequest, id: string): Promise<AsyncCompletion> {
    const { stored } = await this.#store.get(this.#store.placeOf(requestCaller(http)), id);
    return completionView(stored);
  }

  /** Cancels one that runs, on any master; deletes one that has ended. */
  async cancel(http: CallerRequest, id: string): Promise<AsyncCompletion> {
    const place = this.#store.placeOf(requestCaller(http));
    const { stored, version } = await this.#store.get(place, id);
    if (stored.status !== "in_progress") {
      await this.#store.delete(place, id);
      return completionView(stored);
    }
    const running = this.#running.get(id);
    if (running) {
      running.abort.abort(this.#running.cancelled());
      return completionView(await running.ended);
    }
    const ended = { ...stored, status: "cancelled" as const };
    return savedOrNewer(
      async () => {
        await this.#store.save(place, ended, version);
        return completionView(ended);
      },
      () => this.retrieve(http, id),
    );
  }

  async #start(http: CallerRequest, reply: FastifyReply, name: CompletionName): Promise<void> {
    this.#running.expectRoom();
    let running: Running | undefined;
    const prepared = await this.#calls.detach(
      reply,
      async (abort) => {
        const made = await this.#completions.prepare(http, reply, name.id);
        running = await this.#begin(made, abort, name);
        return made;
      },
      async (made, signal) => {
        const text = await this.#completions.collect(http, made, signal);
        await this.#end(running as Running, { status: "completed", answer: JSON.parse(text) });
      },
      (_, failure) => this.#end(running as Running, failed(failure)),
    );
    reply.headers(prepared.headers);
    await accept(reply, (running as Running | undefined)?.begun as StoredCompletion);
  }

  async #begin(
    { call, model }: PreparedCompletion,
    abort: AbortController,
    { place, id, request }: CompletionName,
  ): Promise<Running> {
    const begun: StoredCompletion = {
      id,
      created: Math.floor(Date.now() / 1000),
      model: model.id,
      fingerprint: fingerprintOf(model),
      request,
      status: "in_progress",
    };
    // Concurrent retries: the one whose record is first runs.
    const isFirst = !this.#store.running.has(id);
    this.#store.running.add(id);
    try {
      const version = await this.#store.save(place, begun, 0);
      const { promise: ended, resolve } = Promise.withResolvers<StoredCompletion>();
      const running = { place, abort, begun, version, ended, resolve, isEnding: false };
      this.#running.add(id, running);
      return running;
    } catch (thrown) {
      if (isFirst) this.#store.running.delete(id);
      const failure = toAppError(thrown);
      call.close(failure);
      throw failure;
    }
  }

  /** A change by another master is later than the begin and wins. */
  async #end(
    running: Running,
    end: Pick<StoredCompletion, "status" | "answer" | "error">,
  ): Promise<void> {
    running.isEnding = true;
    const { place, begun, version } = running;
    let ended: StoredCompletion = { ...begun, ...end };
    try {
      await this.#store.save(place, ended, version);
    } catch (thrown) {
      const error = toAppError(thrown);
      ended = { ...begun, ...failed(error) };
      if (error.code !== "precondition_failed") {
        this.#log.warn({ id: begun.id, error }, "the end of a completion could not be stored");
      }
    }
    this.#running.delete(begun.id);
    this.#store.running.delete(begun.id);
    running.resolve(ended);
  }
}

function failed({ code, message, param }: AppError) {
  const status = code === "cancelled" ? ("cancelled" as const) : ("failed" as const);
  return { status, error: { code, message, param: param ?? null } };
}

async function replay(
  reply: FastifyReply,
  { stored }: KeptCompletion,
  request: string,
): Promise<void> {
  if (stored.request !== request) {
    const message = "Another request has this Idempotency-Key: give this one a key of its own.";
    throw new AppError("unprocessable", message, { param: "Idempotency-Key" });
  }
  reply.header("idempotency-replayed", "true");
  const { answer: _answer, error: _error, ...begun } = stored;
  await accept(reply, { ...begun, status: "in_progress" });
}

async function accept(reply: FastifyReply, begun: StoredCompletion): Promise<void> {
  await reply
    .code(202)
    .headers({
      location: `/api/v1/completions/${begun.id}`,
      "preference-applied": "respond-async",
      "retry-after": POLL_S,
    })
    .send(completionView(begun));
}
