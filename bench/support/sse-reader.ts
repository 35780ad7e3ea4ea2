import { StringDecoder } from "node:string_decoder";

/** Splits a server-sent event stream into the `data` of its events, without comments. */
class SseReader {
  readonly #onData: (data: string) => void;
  readonly #decoder = new StringDecoder("utf8");
  #rest = "";

  constructor(onData: (data: string) => void) {
    this.#onData = onData;
  }

  push(bytes: Buffer): void {
    const text = this.#rest + this.#decoder.write(bytes);
    let start = 0;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n", start)) {
      this.#event(text.slice(start, end));
      start = end + 2;
    }
    this.#rest = text.slice(start);
  }

  #event(block: string): void {
    if (block.startsWith("data: ") && !block.includes("\n")) {
      this.#onData(block.slice(6));
      return;
    }
    const lines = block.split("\n").filter((line) => line.startsWith("data:"));
    if (lines.length > 0) this.#onData(lines.map((line) => line.slice(5).trimStart()).join("\n"));
  }
}

/** What the benchmarks read of a `chat.completion.chunk`. */
interface ChatChunk {
  readonly choices?: readonly { readonly delta?: { readonly content?: string | null } }[];
  readonly usage?: ChatUsage | null;
  readonly error?: { readonly message?: string };
}

export interface ChatUsage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly prompt_tokens_details?: { readonly cached_tokens?: number };
}

/** Parses the stream of one chat answer: its text, its usage and its end. */
export class ChatStream {
  text = "";
  /** Events with text. */
  textFrames = 0;
  frames = 0;
  usage: ChatUsage | undefined;
  /** True once `[DONE]` came, which is the only sign of success. */
  done = false;
  error: string | undefined;
  readonly #onText: () => void;
  readonly #reader = new SseReader((data) => this.#onData(data));

  /** `onText` is called as each event with text comes in. */
  constructor(onText: () => void = () => undefined) {
    this.#onText = onText;
  }

  push(bytes: Buffer): void {
    this.#reader.push(bytes);
  }

  #onData(data: string): void {
    this.frames += 1;
    if (data === "[DONE]") {
      this.done = true;
      return;
    }
    const chunk = JSON.parse(data) as ChatChunk;
    if (chunk.error) this.error = chunk.error.message ?? data;
    if (chunk.usage) this.usage = chunk.usage;
    const text = chunk.choices?.[0]?.delta?.content;
    if (!text) return;
    this.text += text;
    this.textFrames += 1;
    this.#onText();
  }
}
