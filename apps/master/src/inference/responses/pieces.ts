import { AppError } from "@heddle/base/errors";
import type {
  EngineEvent,
  FinishReason,
  ReasoningStyle,
  TokenLogprob,
} from "@heddle/contracts/engine";
import { type ChoiceCalls, ChoiceSplitter, type SplitChoice } from "../chat/choice-splitter.ts";

/** A piece of an answer, from which a response and all its events follow. */
export type Piece =
  | { readonly kind: "reasoning"; readonly text: string }
  | {
      readonly kind: "text";
      readonly text: string;
      readonly logprobs?: readonly TokenLogprob[] | undefined;
    }
  | { readonly kind: "call"; readonly id: string; readonly name: string }
  | { readonly kind: "arguments"; readonly text: string };

/** Splits the events of the one choice of a response into pieces. */
export class PieceSplitter {
  readonly #splitter: ChoiceSplitter;
  readonly #onReasoned: (tokens: number) => void;
  #finish: FinishReason | undefined;

  constructor(
    style: ReasoningStyle | undefined,
    calls: ChoiceCalls,
    onReasoned: (tokens: number) => void,
  ) {
    this.#splitter = new ChoiceSplitter(style, calls);
    this.#onReasoned = onReasoned;
  }

  /** Why the answer ended, once it has. */
  get finish(): FinishReason | undefined {
    return this.#finish;
  }

  push(event: EngineEvent): readonly Piece[] {
    if (event.type === "delta") return this.#piecesOf(this.#splitter.push(event));
    if (event.type !== "finish") return [];
    const rest = this.#splitter.finish();
    this.#finish = this.#splitter.reasonOf(event.reason);
    return this.#piecesOf(rest);
  }

  /** Text without characters has a part of one; it counts only by its scores. */
  #piecesOf({ reasoning, content, calls, logprobs, reasoningTokens }: SplitChoice): Piece[] {
    this.#onReasoned(reasoningTokens);
    const pieces: Piece[] = [];
    if (reasoning !== "") pieces.push({ kind: "reasoning", text: reasoning });
    if (content !== "" || logprobs?.length) {
      pieces.push({ kind: "text", text: content, ...(logprobs?.length ? { logprobs } : {}) });
    }
    for (const { id, name, arguments: text } of calls) {
      if (id !== undefined && name !== undefined) pieces.push({ kind: "call", id, name });
      if (text !== "") pieces.push({ kind: "arguments", text });
    }
    return pieces;
  }
}

/** The most bytes of one response, scores included; a larger one cannot be stored. */
const MAX_PIECE_BYTES = 32 * 2 ** 20;
const SCORE_BYTES = 128;

/** The pieces of a response, from which its stream can be repeated. */
export class Journal {
  readonly pieces: Piece[] = [];
  /** Whether a stream shows the pieces one by one; else they are joined. */
  readonly isStreamed: boolean;
  #bytes = 0;

  constructor(isStreamed: boolean) {
    this.isStreamed = isStreamed;
  }

  add(piece: Piece): void {
    this.#bytes += bytesOf(piece);
    if (this.#bytes > MAX_PIECE_BYTES) {
      const message = `The response is larger than ${MAX_PIECE_BYTES} bytes. Ask for less text, or for fewer log-probabilities.`;
      throw new AppError("insufficient_storage", message);
    }
    if (this.isStreamed) this.pieces.push(piece);
    else appendJoined(this.pieces, piece);
  }
}

function bytesOf(piece: Piece): number {
  if (piece.kind === "call") return piece.name.length + SCORE_BYTES;
  const scores = piece.kind === "text" ? (piece.logprobs ?? []) : [];
  const scored = scores.reduce((sum, { top }) => sum + SCORE_BYTES * (1 + top.length), 0);
  return Buffer.byteLength(piece.text) + scored;
}

/** Appends a piece, as part of the last one where both are of one kind. */
function appendJoined(pieces: Piece[], piece: Piece): void {
  const last = pieces.at(-1);
  if (last === undefined || last.kind !== piece.kind || piece.kind === "call") {
    pieces.push(piece);
    return;
  }
  const text = (last as { readonly text: string }).text + piece.text;
  if (piece.kind !== "text") pieces[pieces.length - 1] = { ...piece, text };
  else {
    const { logprobs: before = [] } = last as Piece & { readonly kind: "text" };
    const logprobs = [...before, ...(piece.logprobs ?? [])];
    pieces[pieces.length - 1] = {
      kind: "text",
      text,
      ...(logprobs.length > 0 ? { logprobs } : {}),
    };
  }
}
