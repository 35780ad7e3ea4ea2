import { StringDecoder } from "node:string_decoder";
import { ServerSentEventParser } from "@heddle/client/server-sent-events";

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
  readonly #decoder = new StringDecoder("utf8");
  readonly #parser = new ServerSentEventParser();

  /** `onText` is called as each event with text comes in. */
  constructor(onText: () => void = () => undefined) {
    this.#onText = onText;
  }

  push(bytes: Buffer): void {
    for (const { data } of this.#parser.push(this.#decoder.write(bytes))) {
      if (data !== "") this.#onData(data);
    }
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
