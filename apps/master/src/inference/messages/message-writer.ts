import type {
  MessageAnswer,
  MessageBlock,
  MessageEvent,
} from "@heddle/contracts/api/inference/messages";
import type { EngineEvent, Usage } from "@heddle/contracts/engine";
import type { SplitChoice } from "../chat/choice-splitter.ts";
import type { ToolCallDelta } from "../chat/tool-calls.ts";

type BlockType = MessageBlock["type"];
type Stop = Pick<MessageAnswer, "stop_reason" | "stop_sequence" | "stop_details" | "container">;

const OPEN_STOP: Stop = {
  stop_reason: null,
  stop_sequence: null,
  stop_details: null,
  container: null,
};

/** The events of one message: blocks one after another, each begun, filled and ended. */
export class MessageWriter {
  readonly #identity: Pick<MessageAnswer, "id" | "model" | "system_fingerprint">;
  #index = -1;
  #open: BlockType | undefined;
  #stop: Stop = OPEN_STOP;
  readonly #showsThinking: boolean;

  constructor(
    identity: Pick<MessageAnswer, "id" | "model" | "system_fingerprint">,
    showsThinking = true,
  ) {
    this.#identity = identity;
    this.#showsThinking = showsThinking;
  }

  start(usage: Usage): MessageEvent {
    return {
      type: "message_start",
      message: {
        ...this.#identity,
        type: "message",
        role: "assistant",
        content: [],
        ...OPEN_STOP,
        usage: usageOf(usage),
        diagnostics: null,
      },
    };
  }

  /** The events of a piece of the answer. */
  *piece({ reasoning, content, calls }: SplitChoice): Generator<MessageEvent, void> {
    if (reasoning !== "") {
      if (this.#open !== "thinking") {
        yield* this.#begin({ type: "thinking", thinking: "", signature: "" });
      }
      if (this.#showsThinking) yield this.#delta({ type: "thinking_delta", thinking: reasoning });
    }
    if (content !== "") {
      if (this.#open !== "text") yield* this.#begin({ type: "text", text: "", citations: null });
      yield this.#delta({ type: "text_delta", text: content });
    }
    for (const call of calls) yield* this.#call(call);
  }

  /** Why the answer ended, given what its last block is. */
  ended(event: EngineEvent & { readonly type: "finish" }): void {
    const stop_reason = this.#reasonOf(event);
    this.#stop = { ...OPEN_STOP, stop_reason, stop_sequence: event.stop ?? null };
  }

  *end(usage: Usage): Generator<MessageEvent, void> {
    yield* this.#endBlock();
    yield { type: "message_delta", delta: this.#stop, usage: usageOf(usage) };
    yield { type: "message_stop" };
  }

  *#call({ id, name, arguments: text }: ToolCallDelta): Generator<MessageEvent, void> {
    if (id !== undefined && name !== undefined) {
      const own = id.replace(/^call_/, "toolu_");
      const caller = { type: "direct" as const };
      yield* this.#begin({ type: "tool_use", id: own, name, input: {}, caller });
    }
    if (text !== "") yield this.#delta({ type: "input_json_delta", partial_json: text });
  }

  *#begin(content_block: MessageBlock): Generator<MessageEvent, void> {
    yield* this.#endBlock();
    this.#open = content_block.type;
    yield { type: "content_block_start", index: ++this.#index, content_block };
  }

  *#endBlock(): Generator<MessageEvent, void> {
    if (this.#open === undefined) return;
    this.#open = undefined;
    yield { type: "content_block_stop", index: this.#index };
  }

  #delta(delta: (MessageEvent & { readonly type: "content_block_delta" })["delta"]): MessageEvent {
    return { type: "content_block_delta", index: this.#index, delta };
  }

  #reasonOf({
    reason,
    stop,
  }: EngineEvent & { readonly type: "finish" }): MessageAnswer["stop_reason"] {
    if (stop !== undefined) return "stop_sequence";
    if (reason === "length") return "max_tokens";
    if (reason === "content_filter") return "refusal";
    return this.#open === "tool_use" ? "tool_use" : "end_turn";
  }
}

/** Puts the events of a message together. */
export class MessageCollector {
  #message: MessageAnswer | undefined;
  readonly #blocks: MessageBlock[] = [];
  /** The text of the block that is open. */
  #text = "";

  get message(): MessageAnswer {
    if (this.#message === undefined) throw new Error("no message was begun");
    return { ...this.#message, content: this.#blocks };
  }

  take(event: MessageEvent): void {
    switch (event.type) {
      case "message_start":
        this.#message = event.message;
        return;
      case "content_block_start":
        this.#blocks.push(event.content_block);
        this.#text = "";
        return;
      case "content_block_delta":
        this.#text += deltaText(event.delta);
        return;
      case "content_block_stop":
        this.#fill();
        return;
      case "message_delta":
        this.#message = { ...this.message, ...event.delta, usage: event.usage };
        return;
      case "message_stop":
        return;
      default:
        event satisfies never;
    }
  }

  /** Puts the text into the last block; a call whose arguments were cut is no call. */
  #fill(): void {
    const block = this.#blocks.pop();
    if (block?.type === "text") this.#blocks.push({ ...block, text: this.#text });
    if (block?.type === "thinking") this.#blocks.push({ ...block, thinking: this.#text });
    if (block?.type !== "tool_use") return;
    const input = parsed(this.#text);
    if (input !== undefined) this.#blocks.push({ ...block, input });
  }
}

function deltaText(delta: (MessageEvent & { readonly type: "content_block_delta" })["delta"]) {
  if (delta.type === "text_delta") return delta.text;
  return delta.type === "thinking_delta" ? delta.thinking : delta.partial_json;
}

function parsed(text: string): Record<string, unknown> | undefined {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}

function usageOf(usage: Usage): MessageAnswer["usage"] {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = usage;
  return {
    input_tokens: promptTokens - cachedTokens,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cachedTokens,
    output_tokens: completionTokens,
    output_tokens_details: { thinking_tokens: reasoningTokens },
    cache_creation: null,
    inference_geo: null,
    server_tool_use: null,
    service_tier: null,
    speed: null,
  };
}
