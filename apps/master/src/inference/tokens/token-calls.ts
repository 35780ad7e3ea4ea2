import {
  type ApplyTemplateRequest,
  parseApplyTemplateRequest,
  parseDetokenizeRequest,
  parseTokenizeRequest,
  type TokenizeRequest,
} from "@heddle/contracts/api/inference/tokens";
import type { EngineEvent, InputReading, ReadRequest } from "@heddle/contracts/engine";
import type { ModelRecord } from "@heddle/control/state";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import { toChatInput } from "../chat/chat-request.ts";
import type { InferenceAnswer } from "../dispatch/inference-port.ts";
import { cutShort, InferenceCalls, type PermittedCall } from "../inference-calls.ts";

/** Items of a list that are written at once. */
const ITEMS_PER_PIECE = 8192;

/** A body whose reading is asked for, and how the reading is answered. */
export interface ReadingCall {
  readonly model: string;
  /** What was read of the store for it. */
  readonly storedChars?: number;
  readonly read: Omit<ReadRequest, "kind">;
  readonly pieces: (reading: InputReading, contextTokens: number) => Iterable<string>;
}

/**
 * POST /tokenize, /detokenize, /apply-template and what counts tokens: engines read, and compute
 * nothing. Such a call takes no tokens of its key.
 */
export class TokenCalls {
  readonly #calls: InferenceCalls;

  constructor(@Inject(InferenceCalls) calls: InferenceCalls) {
    this.#calls = calls;
  }

  tokenize(http: CallerRequest, reply: FastifyReply): Promise<void> {
    return this.answer(http, reply, (body) => {
      const request = parseTokenizeRequest(body);
      return {
        model: request.model,
        read: tokenizing(request),
        pieces: (reading, contextTokens) => tokenPieces(request, reading, contextTokens),
      };
    });
  }

  detokenize(http: CallerRequest, reply: FastifyReply): Promise<void> {
    return this.answer(http, reply, (body) => {
      const { model, tokens } = parseDetokenizeRequest(body);
      return { model, read: { input: { kind: "tokens", tokens }, give: "text" }, pieces: promptOf };
    });
  }

  applyTemplate(http: CallerRequest, reply: FastifyReply): Promise<void> {
    return this.answer(http, reply, (body) => {
      const request: ApplyTemplateRequest = parseApplyTemplateRequest(body);
      const read = { input: toChatInput(request), give: "text" } as const;
      return { model: request.model, read, pieces: promptOf };
    });
  }

  /** Answers with what `ask` makes of the body and of its reading. */
  answer(
    http: CallerRequest,
    reply: FastifyReply,
    ask: (body: Record<string, unknown>) => ReadingCall | Promise<ReadingCall>,
  ): Promise<void> {
    return this.#calls.answer(
      reply,
      async (abort) => {
        const asked = await ask(parseJsonBody(http.body as Buffer));
        this.#calls.parts.inFlight.hold(abort, asked.storedChars ?? 0);
        const model = this.#calls.resolve(http, asked.model);
        const permitted = await this.#calls.permit(http, reply, {
          model,
          promptTokens: 0,
          outputTokens: 0,
        });
        return { ...permitted, asked };
      },
      async (prepared, signal) => {
        const { asked, model } = prepared;
        const reading = await this.#read(http, prepared, asked, signal);
        const pieces = asked.pieces(reading, this.#contextTokens(model));
        return this.#calls.sendPieces(http, reply, prepared, pieces, signal);
      },
    );
  }

  #contextTokens(model: ModelRecord): number {
    return this.#calls.parts.models.contextTokens(model);
  }

  async #read(
    http: CallerRequest,
    prepared: PermittedCall,
    { read }: ReadingCall,
    signal: AbortSignal,
  ): Promise<InputReading> {
    const work = { request: { kind: "read", ...read } } as const;
    const answer = await this.#calls.start(http, prepared, work, signal);
    return readingOf(answer, (event) => prepared.call.observe(event));
  }
}

/** What an engine has read. */
export async function readingOf(
  { events, node }: InferenceAnswer,
  observe: (event: EngineEvent) => void = () => undefined,
): Promise<InputReading> {
  let reading: InputReading | undefined;
  for await (const event of events) {
    observe(event);
    if (event.type === "reading") reading = event;
    if (event.type === "done" && reading !== undefined) return reading;
  }
  throw cutShort(node);
}

function tokenizing(request: TokenizeRequest): ReadingCall["read"] {
  const { prompt, messages, tools, add_special_tokens: added, return_token_strs } = request;
  const give = return_token_strs ? "pieces" : "tokens";
  if (messages != null) return { input: toChatInput({ messages, tools }), give };
  return { input: { kind: "text", text: prompt ?? "" }, give, isBare: added === false };
}

function* promptOf({ text = "" }: InputReading): Generator<string, void> {
  yield JSON.stringify({ prompt: text });
}

function* tokenPieces(
  { return_token_strs: isSpelled }: TokenizeRequest,
  { count, tokens = new Int32Array(0), pieces = [] }: InputReading,
  contextTokens: number,
): Generator<string, void> {
  yield `{"count":${count},"max_model_len":${contextTokens},"tokens":[`;
  for (let at = 0; at < tokens.length; at += ITEMS_PER_PIECE) {
    yield `${at === 0 ? "" : ","}${tokens.subarray(at, at + ITEMS_PER_PIECE).join(",")}`;
  }
  yield `],"token_strs":${isSpelled ? "[" : "null"}`;
  for (let at = 0; isSpelled && at < pieces.length; at += ITEMS_PER_PIECE) {
    const items = JSON.stringify(pieces.slice(at, at + ITEMS_PER_PIECE)).slice(1, -1);
    yield `${at === 0 ? "" : ","}${items}`;
  }
  yield isSpelled ? "]}" : "}";
}
