import { type AppError, toAppError } from "@heddle/base/errors";
import type { ResponseEvent } from "@heddle/contracts/api/responses/response";
import type { Logger } from "@heddle/observability/logger";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { LOGGER } from "../../config/config.module.ts";
import type { CallerRequest } from "../../http/access.ts";
import type { EventStream } from "../../http/event-stream.ts";
import { InferenceCalls, type StreamFormat } from "../inference-calls.ts";
import { BackgroundResponses } from "./background-responses.ts";
import { eventText, failureOutcome, outcomeOf, ResponseBuilder } from "./response-builder.ts";
import {
  type PreparedResponse,
  ResponseGeneration,
  responseRequestOf,
} from "./response-generation.ts";
import { shown } from "./response-store.ts";

/** POST /responses: a chat call, whose answer becomes items and events. */
export class ResponseCalls {
  readonly #calls: InferenceCalls;
  readonly #generation: ResponseGeneration;
  readonly #background: BackgroundResponses;
  readonly #log: Logger;

  constructor(
    @Inject(InferenceCalls) calls: InferenceCalls,
    @Inject(ResponseGeneration) generation: ResponseGeneration,
    @Inject(BackgroundResponses) background: BackgroundResponses,
    @Inject(LOGGER) log: Logger,
  ) {
    this.#calls = calls;
    this.#generation = generation;
    this.#background = background;
    this.#log = log;
  }

  answer(http: CallerRequest, reply: FastifyReply): Promise<void> {
    const request = responseRequestOf(http);
    if (request.background === true) return this.#background.answer(http, reply, request);
    return this.#calls.answer(
      reply,
      (abort) => this.#generation.prepare(http, reply, request, abort),
      (prepared, signal) =>
        request.stream === true
          ? this.#stream(http, reply, prepared, signal)
          : this.#whole(http, reply, prepared, signal),
    );
  }

  async #whole(
    http: CallerRequest,
    reply: FastifyReply,
    prepared: PreparedResponse,
    signal: AbortSignal,
  ): Promise<undefined> {
    const answer = await this.#generation.start(http, prepared, signal);
    const finish = await this.#generation.generate(prepared, answer, () => undefined);
    const stored = await this.#generation.keep(prepared, outcomeOf(finish, prepared.call.usage));
    this.#calls.send(http, reply, prepared, JSON.stringify(shown(stored)));
  }

  async #stream(
    http: CallerRequest,
    reply: FastifyReply,
    prepared: PreparedResponse,
    signal: AbortSignal,
  ): Promise<AppError | undefined> {
    const builder = new ResponseBuilder(prepared.head);
    const isPadded = prepared.request.stream_options?.include_obfuscation === true;
    const textOf = (events: readonly ResponseEvent[]) =>
      events.map((event) => eventText(event, isPadded)).join("");
    const failureText = (failure: AppError) =>
      textOf(builder.end(failureOutcome(failure, prepared.call.usage)));
    let hasBegun = false;
    const format: StreamFormat = {
      end: "",
      failure: (failure) => (hasBegun ? failureText(failure) : textOf(builder.refuse(failure))),
    };
    const starting = this.#generation.start(http, prepared, signal);
    const pump = async (stream: EventStream) => {
      const answer = await starting;
      hasBegun = true;
      stream.write(textOf([...builder.create(), ...builder.begin()]));
      const finish = await this.#generation.generate(prepared, answer, async (piece) => {
        if (stream.write(textOf(builder.push(piece)))) return;
        await stream.drained();
        signal.throwIfAborted();
      });
      const outcome = outcomeOf(finish, prepared.call.usage);
      // Stored before its end is sent: a next call may continue from it at once.
      await this.#generation.keep(prepared, outcome);
      return textOf(builder.end(outcome));
    };
    const failure = await this.#calls.stream(http, reply, prepared, signal, pump, format);
    if (failure && hasBegun) await this.#keepFailure(prepared, failure);
    return failure;
  }

  /** Its client has seen the response begin and may ask for it. */
  async #keepFailure(prepared: PreparedResponse, failure: AppError): Promise<void> {
    if (failure.code === "cancelled" || failure.code === "request_timeout") return;
    try {
      await this.#generation.keep(prepared, failureOutcome(failure, prepared.call.usage));
    } catch (thrown) {
      const { id } = prepared.head;
      this.#log.warn({ id, error: toAppError(thrown) }, "a failed response could not be stored");
    }
  }
}
