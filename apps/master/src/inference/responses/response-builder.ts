import type { AppError } from "@heddle/base/errors";
import type { OutputItem, TokenScores } from "@heddle/contracts/api/responses/items";
import type {
  ApiResponse,
  ResponseEvent,
  ResponseUsage,
} from "@heddle/contracts/api/responses/response";
import type { FinishReason, TokenLogprob, Usage } from "@heddle/contracts/engine";
import { paddingFor } from "../chat/chat-format.ts";
import type { Piece } from "./pieces.ts";

/** What a response says from its begin to its end. */
export type ResponseHead = Omit<
  ApiResponse,
  "status" | "completed_at" | "error" | "incomplete_details" | "output" | "usage"
>;

/** How a response ended. */
export interface Outcome {
  readonly status: "completed" | "incomplete" | "failed" | "cancelled";
  /** Seconds since the epoch. */
  readonly at: number;
  readonly usage: ResponseUsage;
  readonly reason?: "max_output_tokens" | "content_filter";
  readonly error?: ApiResponse["error"];
}

/** What is new of a response. */
export interface ResponseUpdate {
  readonly hasBegun: boolean;
  /** After those that came before. */
  readonly pieces: readonly Piece[];
  /** The last update has it. */
  readonly outcome?: Outcome | undefined;
}

type Unnumbered = ResponseEvent extends infer Event
  ? Event extends ResponseEvent
    ? Omit<Event, "sequence_number">
    : never
  : never;

type ItemStatus = OutputItem["status"];

/** The item that grows. */
interface OpenItem {
  readonly kind: "reasoning" | "text" | "call";
  readonly id: string;
  readonly index: number;
  readonly call: { readonly id: string; readonly name: string } | undefined;
  readonly texts: string[];
  readonly logprobs: TokenScores[number][];
}

/**
 * Builds a response of its pieces, with the events of its stream. Equal heads, pieces and outcomes
 * give equal events, so that a stored response repeats its stream.
 */
export class ResponseBuilder {
  readonly #head: ResponseHead;
  readonly #suffix: string;
  readonly #output: OutputItem[] = [];
  #status: ApiResponse["status"];
  #outcome: Outcome | undefined;
  #open: OpenItem | undefined;
  #sequence = 0;

  constructor(head: ResponseHead) {
    this.#head = head;
    this.#suffix = head.id.slice(head.id.indexOf("_") + 1);
    this.#status = head.background ? "queued" : "in_progress";
  }

  /** The response as far as it is known. */
  get response(): ApiResponse {
    const { status = this.#status, at, usage, reason, error = null } = this.#outcome ?? {};
    return {
      ...this.#head,
      status,
      completed_at: status === "completed" && at !== undefined ? at : null,
      error,
      incomplete_details: reason === undefined ? null : { reason },
      output: [...this.#output],
      ...(usage === undefined ? {} : { usage: currentUsage(usage) }),
    };
  }

  /** The first event, before a worker has begun. */
  create(): ResponseEvent[] {
    const response = this.response;
    const created = { type: "response.created", response } as const;
    if (!this.#head.background) return this.#numbered([created]);
    return this.#numbered([created, { type: "response.queued", response }]);
  }

  begin(): ResponseEvent[] {
    this.#status = "in_progress";
    return this.#numbered([{ type: "response.in_progress", response: this.response }]);
  }

  push(piece: Piece): ResponseEvent[] {
    const kind = piece.kind === "arguments" ? "call" : piece.kind;
    const events: Unnumbered[] = [];
    if (this.#open === undefined || this.#open.kind !== kind || piece.kind === "call") {
      events.push(...this.#close("completed"), ...this.#openItem(kind, piece));
    }
    const open = this.#open;
    if (open !== undefined && piece.kind !== "call") events.push(deltaOf(open, piece));
    return this.#numbered(events);
  }

  /** The last events. An answer without any text has an empty message. */
  end(outcome: Outcome): ResponseEvent[] {
    const { status } = outcome;
    const events: Unnumbered[] = [];
    if (status === "completed" || status === "incomplete") {
      if (this.#output.length === 0 && !this.#open) {
        events.push(...this.#openItem("text", { kind: "text", text: "" }));
      }
      events.push(...this.#close(status));
    } else this.#close("incomplete");
    this.#outcome = outcome;
    // OpenAI has no event of a cancelled response; its status says it.
    const type = `response.${status === "cancelled" ? "incomplete" : status}` as const;
    return this.#numbered([...events, { type, response: this.response }]);
  }

  /** The event of a failure before the response was begun. */
  refuse({ code, message, param }: AppError): ResponseEvent[] {
    const event: Unnumbered = { type: "error", code, message, param: param ?? null };
    return this.#numbered([event]);
  }

  #openItem(kind: OpenItem["kind"], piece: Piece): Unnumbered[] {
    const index = this.#output.length;
    const id = `${PREFIXES[kind]}_${this.#suffix}_${index}`;
    const call = piece.kind === "call" ? piece : undefined;
    const open: OpenItem = { kind, id, index, call, texts: [], logprobs: [] };
    this.#open = open;
    const begun = itemOf(open, "in_progress", false);
    const added: Unnumbered = {
      type: "response.output_item.added",
      output_index: index,
      item: begun,
    };
    if (kind === "call") return [added];
    const part = { item_id: id, output_index: index, content_index: 0, part: partOf(open) };
    return [added, { type: "response.content_part.added", ...part }];
  }

  #close(status: ItemStatus): Unnumbered[] {
    const open = this.#open;
    if (open === undefined) return [];
    this.#open = undefined;
    const item = itemOf(open, status, true);
    this.#output.push(item);
    const at = { item_id: open.id, output_index: open.index };
    const done: Unnumbered = {
      type: "response.output_item.done",
      output_index: open.index,
      item,
    };
    if (open.kind === "call") {
      const { name = "" } = open.call ?? {};
      const whole = { ...at, name, arguments: open.texts.join("") };
      return [{ type: "response.function_call_arguments.done", ...whole }, done];
    }
    const inPart = { ...at, content_index: 0 };
    const text = open.texts.join("");
    const textDone: Unnumbered =
      open.kind === "text"
        ? { type: "response.output_text.done", ...inPart, text, logprobs: open.logprobs }
        : { type: "response.reasoning_text.done", ...inPart, text };
    return [textDone, { type: "response.content_part.done", ...inPart, part: partOf(open) }, done];
  }

  #numbered(events: readonly Unnumbered[]): ResponseEvent[] {
    return events.map((event) => ({ ...event, sequence_number: this.#sequence++ }));
  }
}

const PREFIXES = { reasoning: "rs", text: "msg", call: "fc" } as const;

function deltaOf(open: OpenItem, piece: Exclude<Piece, { readonly kind: "call" }>): Unnumbered {
  open.texts.push(piece.text);
  const at = { item_id: open.id, output_index: open.index, delta: piece.text };
  if (piece.kind === "arguments") return { type: "response.function_call_arguments.delta", ...at };
  const inPart = { ...at, content_index: 0 };
  if (piece.kind === "reasoning") return { type: "response.reasoning_text.delta", ...inPart };
  const logprobs = scoresOf(piece.logprobs ?? []);
  // Of a joined piece there may be more than a call takes arguments.
  for (const score of logprobs) open.logprobs.push(score);
  return { type: "response.output_text.delta", ...inPart, logprobs };
}

/** An item that is added has no content yet. */
function itemOf(open: OpenItem, status: ItemStatus, hasContent: boolean): OutputItem {
  const { id, kind, call } = open;
  if (kind === "reasoning") {
    const content = hasContent
      ? [{ type: "reasoning_text" as const, text: open.texts.join("") }]
      : [];
    return { id, type: "reasoning", summary: [], content, status };
  }
  if (kind === "call") {
    const { id: call_id = "", name = "" } = call ?? {};
    return { id, type: "function_call", call_id, name, arguments: open.texts.join(""), status };
  }
  const content = hasContent ? [textPart(open)] : [];
  return { id, type: "message", role: "assistant", status, content };
}

function partOf(open: OpenItem) {
  if (open.kind === "text") return textPart(open);
  return { type: "reasoning_text" as const, text: open.texts.join("") };
}

function textPart({ texts, logprobs }: OpenItem) {
  const text = texts.join("");
  return { type: "output_text" as const, text, annotations: [], logprobs: [...logprobs] };
}

function scoresOf(logprobs: readonly TokenLogprob[]): TokenScores {
  return logprobs.map(({ token, bytes, logprob, top }) => ({
    token,
    bytes: [...bytes],
    logprob,
    top_logprobs: top.map((other) => ({ ...other, bytes: [...other.bytes] })),
  }));
}

/** The end of an answer whose text has ended for the reason. */
export function outcomeOf(finish: FinishReason | undefined, usage: Usage): Outcome {
  const end = { at: secondsNow(), usage: usageOf(usage) };
  if (finish === "length") return { status: "incomplete", reason: "max_output_tokens", ...end };
  if (finish === "content_filter") {
    return { status: "incomplete", reason: "content_filter", ...end };
  }
  return { status: "completed", ...end };
}

export function failureOutcome({ code, message }: AppError, usage: Usage): Outcome {
  const end = { at: secondsNow(), usage: usageOf(usage) };
  if (code === "cancelled") return { status: "cancelled", ...end };
  return {
    status: "failed",
    error: { code: publicCode(code), message },
    ...end,
  };
}

/** OpenAI's code of the failure. */
function publicCode(code: string) {
  if (code === "rate_limit_exceeded") return code;
  return INVALID.has(code) ? "invalid_prompt" : "server_error";
}

/** Failures that are in the request. */
const INVALID: ReadonlySet<string> = new Set([
  "invalid_value",
  "unsupported_parameter",
  "context_length_exceeded",
]);

function usageOf(usage: Usage): ResponseUsage {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = usage;
  return {
    input_tokens: promptTokens,
    input_tokens_details: { cached_tokens: cachedTokens, cache_write_tokens: 0 },
    output_tokens: completionTokens,
    output_tokens_details: { reasoning_tokens: reasoningTokens },
    total_tokens: promptTokens + completionTokens,
  };
}

/** Responses that earlier versions stored lack a field. */
function currentUsage(usage: ResponseUsage): ResponseUsage {
  const { cached_tokens, cache_write_tokens = 0 } = usage.input_tokens_details;
  return { ...usage, input_tokens_details: { cached_tokens, cache_write_tokens } };
}

export function secondsNow(): number {
  return Math.floor(Date.now() / 1000);
}

/** The event as text of the stream. Padding hides the sizes of its tokens. */
export function eventText(event: ResponseEvent, isPadded: boolean): string {
  const padding =
    isPadded && "delta" in event ? { obfuscation: paddingFor(event.delta.length) } : {};
  return `event: ${event.type}\ndata: ${JSON.stringify({ ...event, ...padding })}\n\n`;
}
