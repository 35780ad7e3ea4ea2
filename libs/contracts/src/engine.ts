import type { ErrorCode } from "@heddle/base/errors";
import type {
  GpuSplit,
  ModelPlacement,
  ModelStage,
  StageDtype,
  StageLoad,
  UnreachablePeer,
} from "./models/model-division.ts";
import type { UpstreamSpec } from "./models/upstream-spec.ts";

/**
 * The interface of an inference engine. The same types are used on the whole path: master -> (gRPC,
 * proto/worker.proto) -> worker -> (process channel) -> engine, and back.
 */

/** A tool call that an assistant message made. `arguments` is JSON text. */
export interface ToolCall {
  readonly id: string;
  readonly type: "function";
  readonly function: { readonly name: string; readonly arguments: string };
}

/** A function that the model may call. `parameters` is a JSON schema as text. */
export interface ToolDefinition {
  readonly name: string;
  readonly description?: string | undefined;
  readonly parameters: string;
}

/**
 * Which tools of the input are called. The calls are the last part of the text, each as
 * `<tool_call>\n{"name": "NAME", "arguments": ARGUMENTS}\n</tool_call>`, apart by line breaks.
 */
export interface ToolUse {
  /** `required` allows no other text. */
  readonly choice: "auto" | "required";
  /** The tools that may be called. */
  readonly names: readonly string[];
  /** Whether there may be several calls. */
  readonly parallel: boolean;
}

export interface ChatMessage {
  readonly role: "system" | "developer" | "user" | "assistant" | "tool";
  /** Null only for an assistant message with tool calls. */
  readonly content: string | null;
  readonly name?: string | undefined;
  readonly toolCalls?: readonly ToolCall[] | undefined;
  readonly toolCallId?: string | undefined;
}

/** How much a model reasons before it answers. */
export const REASONING_EFFORTS = [
  "none",
  "minimal",
  "low",
  "medium",
  "high",
  "xhigh",
  "max",
] as const;

export type ReasoningEffort = (typeof REASONING_EFFORTS)[number];

/** The model's input: messages for its chat template, plain text, or token ids. */
export type EngineInput =
  | {
      readonly kind: "chat";
      readonly messages: readonly ChatMessage[];
      readonly tools?: readonly ToolDefinition[] | undefined;
      /** Absent: the model's own. */
      readonly effort?: ReasoningEffort | undefined;
    }
  | { readonly kind: "text"; readonly text: string; readonly suffix?: string | undefined }
  | {
      readonly kind: "tokens";
      readonly tokens: readonly number[];
      /** What follows the answer: the model fills in the middle. Only of requests for text. */
      readonly suffix?: string | undefined;
    };

/** An input that needs no chat template. */
export type PlainInput = Exclude<EngineInput, { readonly kind: "chat" }>;

export interface SamplingOptions {
  /** 0 means greedy. */
  readonly temperature: number;
  /** Nucleus mass in (0, 1]; 1 disables it. */
  readonly topP: number;
  /** The number of most likely tokens to sample from; absent for all. */
  readonly topK?: number | undefined;
  /** The minimum probability relative to the most likely token, (0, 1]; absent for none. */
  readonly minP?: number | undefined;
  /** On tokens of prompt and answer, as vLLM defines it; absent for none. */
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

/** The constraint on the text; `schema` is a JSON schema as text. */
export type OutputFormat =
  | "text"
  | "json_object"
  | { readonly kind: "json_schema"; readonly schema: string };

/** Asks for text. */
export interface GenerateRequest {
  readonly kind?: undefined;
  readonly input: EngineInput;
  readonly sampling: SamplingOptions;
  /** Completions of the same prompt, 1..128. */
  readonly choices: number;
  /** Output tokens per choice; absent: up to the context. 0 computes the prompt alone. */
  readonly maxTokens?: number | undefined;
  /** Output tokens per choice before an end token may be sampled, or a stop string end it. */
  readonly minTokens?: number | undefined;
  /** End tokens are never sampled. */
  readonly ignoreEnd?: boolean | undefined;
  /** Whether its numbers must not depend on other requests; absent: as the engine's options say. */
  readonly deterministic?: boolean | undefined;
  /** Up to 32 strings; the text ends before the first of them. */
  readonly stop: readonly string[];
  /** Tokens after which reasoning is ended; absent: as many as the effort allows. */
  readonly reasoningTokens?: number | undefined;
  /** Alternatives per token, 0..20; absent means no log-probabilities at all. */
  readonly topLogprobs?: number | undefined;
  /** The prompt comes before the deltas, with its log-probabilities where `topLogprobs` is there. */
  readonly echo?: boolean | undefined;
  /** The format of the text beside calls of tools. */
  readonly format: OutputFormat;
  /** Absent where no tool is called. */
  readonly toolUse?: ToolUse | undefined;
  /** Absent for the model as it is. */
  readonly adapter?: AdapterSpec | undefined;
  /** What each choice of a continued answer has already. The deltas follow on it. */
  readonly sent?: readonly SentChoice[] | undefined;
}

/** A choice of an answer whose engine was lost, as far as it was sent. */
export interface SentChoice {
  readonly tokens: readonly number[];
  /** UTF-16 units of its text. */
  readonly characters: number;
  readonly isFinished: boolean;
  /** Whether the limit of tokens has chosen one of them. */
  readonly isCut?: boolean | undefined;
}

/** A LoRA adapter over the model of a deployment. */
export interface AdapterSpec {
  readonly weights: WeightsSpec;
  /** What its change of the weights is multiplied by. */
  readonly scale: number;
  /** Its file, once a worker has it. */
  readonly path?: string | undefined;
}

/** A document and what it is ranked by: its vector is the score, or the scores of several labels. */
export interface PairInput {
  readonly kind: "pair";
  readonly query: string;
  readonly document: string;
}

/** Asks for one vector per input, pooled as the model does it. */
export interface EmbedRequest {
  readonly kind: "embed";
  /** At least one; pairs where the model ranks. A fault names `input[i]`. */
  readonly inputs: readonly (PlainInput | PairInput)[];
}

/** Asks how an input is read. Nothing is computed, and no sequence of the engine is taken. */
export interface ReadRequest {
  readonly kind: "read";
  readonly input: EngineInput;
  /**
   * `count`, `tokens` or `pieces`, which are tokens with their texts; or the `text` of a rendered
   * chat or of tokens.
   */
  readonly give: "count" | "tokens" | "pieces" | "text";
  /** The text is tokenized without the tokens that the vocabulary adds. */
  readonly isBare?: boolean | undefined;
}

/** What engines are asked for. */
export type EngineRequest = GenerateRequest | EmbedRequest | ReadRequest;

/** What a request counts as in its replica. Of inputs to embed an engine runs few at once. */
export function sequencesOf(request: EngineRequest): number {
  if (request.kind === "read") return 0;
  return request.kind === "embed" ? 1 : request.choices;
}

/** How an input was read; the members that were asked for. */
export interface InputReading {
  readonly count: number;
  readonly tokens?: Int32Array | undefined;
  readonly pieces?: readonly string[] | undefined;
  readonly text?: string | undefined;
}

/** One token of an answer. `bytes` is the token's UTF-8, which may be part of a character. */
export interface TokenLogprob {
  readonly token: string;
  readonly bytes: readonly number[];
  /** Natural logarithm of the probability under the raw logits; NaN of a prompt's first token. */
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
  /** Prompt tokens found in the KV cache. */
  readonly cachedTokens: number;
  /** Sampled tokens over all choices, including end tokens. */
  readonly completionTokens: number;
  readonly reasoningTokens: number;
}

/**
 * The events of one request.
 * - In order: one `started`; the `prompt`, if asked for; `delta`s; then exactly one of `done` or
 *   `failed`. Each choice has one `finish` after its last delta.
 * - Of an EmbedRequest: one `started`, one `embedding` per input in any order, then the same.
 * - Of a ReadRequest: one `started` of no tokens, one `reading`, then the same.
 * - A refused request has only `failed`; a cancelled one ends with `failed` and code `cancelled`.
 * - `id` is the sender's number of the request, unique on its connection.
 */
export type EngineEvent =
  | {
      readonly type: "started";
      readonly id: number;
      /** 0 where an upstream reports it only at the end. */
      readonly promptTokens: number;
      readonly cachedTokens: number;
      /** Time the request waited for a slot in the engine. */
      readonly queuedMs: number;
    }
  | {
      /** A part of the prompt, once for all choices. */
      readonly type: "prompt";
      readonly id: number;
      readonly text: string;
      readonly logprobs?: readonly TokenLogprob[] | undefined;
    }
  | {
      readonly type: "delta";
      readonly id: number;
      readonly choice: number;
      /** Complete characters only; may be empty if a token ended inside a character. */
      readonly text: string;
      /** Number of tokens in this delta. */
      readonly tokens: number;
      /** The ids of these tokens; absent of an upstream, which sends none. */
      readonly tokenIds?: readonly number[] | undefined;
      /** The limit of tokens has chosen one of the choice's so far: its end will be `length`. */
      readonly isCut?: boolean | undefined;
      readonly logprobs?: readonly TokenLogprob[] | undefined;
    }
  | {
      readonly type: "finish";
      readonly id: number;
      readonly choice: number;
      readonly reason: FinishReason;
      /** The string of `stop` that ended the text; absent where none did, or the upstream does not say. */
      readonly stop?: string | undefined;
    }
  | {
      readonly type: "embedding";
      readonly id: number;
      /** The input's position in the request. */
      readonly input: number;
      /** Not normalised. */
      readonly values: Float32Array;
    }
  | ({ readonly type: "reading"; readonly id: number } & InputReading)
  | { readonly type: "done"; readonly id: number; readonly usage: Usage }
  | { readonly type: "failed"; readonly id: number; readonly error: EngineFailure };

export interface EngineFailure {
  readonly code: ErrorCode;
  readonly message: string;
  readonly param?: string | undefined;
  /** Usage before the failure, if known. */
  readonly usage?: Usage | undefined;
}

/** The sources of a model's weights and their digest. */
export interface WeightsSpec {
  /** The key of the weights in every cache: lower case letters, digits, `.`, `_` and `-`. */
  readonly key: string;
  /** The file's name in the cache, ending in .gguf. */
  readonly file: string;
  /** Tried in order: hf://, https://, file://, oci://, npm://, pypi://, s3://, builtin:// */
  readonly sources: readonly string[];
  /** Lower-case hexadecimal; absent only for file:// and builtin:// sources. */
  readonly sha256?: string | undefined;
  readonly sizeBytes?: number | undefined;
  readonly license?: string | undefined;
}

/** What a model is computed on. */
interface DeviceOptions {
  readonly threads?: number | undefined;
  /** `cpu`, or a GPU's index on its node, or several joined by commas; never chosen silently. */
  readonly device?: string | undefined;
  /** Layers on the GPU; -1 for all. Ignored on `cpu`. */
  readonly gpuLayers?: number | undefined;
}

/** Which requests are computed as if they were alone; `request` leaves it to each request. */
export const DETERMINISTIC_MODES = ["request", "seed", "always"] as const;

export type DeterministicMode = (typeof DETERMINISTIC_MODES)[number];

/** 16 bits a number, or 8.5 in blocks of 32. */
export const KV_DTYPES = ["f16", "q8_0"] as const;

export type KvDtype = (typeof KV_DTYPES)[number];

export interface DecodingOptions {
  /** Tokens predicted from the prompt and computed at once, 0..48; 0 for none. */
  readonly draftTokens?: number | undefined;
  /** `seed`: requests that give a seed; `request` if absent. */
  readonly deterministic?: DeterministicMode | undefined;
  /** An answer that fills the context continues without the older half of what follows the prompt. */
  readonly contextShift?: boolean | undefined;
}

/** How an engine runs a model; the worker chooses absent values for its hardware. */
export interface EngineOptions extends DeviceOptions {
  /** Tokens of context that one request may use. */
  readonly contextTokens?: number | undefined;
  /** Capacity of the KV cache in tokens over all sequences; at least one context. */
  readonly kvTokens?: number | undefined;
  /** Sequences (choices) that decode at once. */
  readonly maxSequences?: number | undefined;
  /** Requests that may wait in the engine before it refuses with `overloaded`. */
  readonly maxQueued?: number | undefined;
  /** Prompt tokens processed per step while any request decodes. */
  readonly prefillBudgetTokens?: number | undefined;
  readonly decoding?: DecodingOptions | undefined;
  /** The type of the numbers in the KV cache; `f16` if absent. */
  readonly kvDtype?: KvDtype | undefined;
  /** A jinja template that replaces the one in the file. */
  readonly chatTemplate?: string | undefined;
  readonly stageDtype?: StageDtype | undefined;
}

/** A file for libllama, with the options of the engine. */
export interface LlamaDeployment {
  readonly key: string;
  readonly engine: "llama";
  readonly weights: WeightsSpec;
  readonly options: EngineOptions;
  /** Over several GPUs; by layers if absent. */
  readonly split?: GpuSplit | undefined;
  /** How its replicas are placed; `auto` if absent. */
  readonly placement?: ModelPlacement | undefined;
  /** One worker's part, where several divide the model; never set for a registered deployment. */
  readonly stage?: ModelStage | undefined;
}

/** An upstream; weights only of a command that reads them. */
export interface UpstreamDeployment {
  readonly key: string;
  readonly engine: "openai";
  readonly upstream: UpstreamSpec;
  readonly weights?: WeightsSpec | undefined;
  readonly options: EngineOptions;
}

/** What serves models; several model ids may share one. Its replicas are placed on workers. */
export type DeploymentSpec = LlamaDeployment | UpstreamDeployment;

export type ReplicaPhase = "pulling" | "loading" | "ready" | "failed" | "unloading";

/** One deployment on one worker, as the worker reports it in every heartbeat. */
export interface ReplicaStatus {
  readonly deployment: string;
  readonly phase: ReplicaPhase;
  /** Pulled and total bytes, while `pulling`. */
  readonly pulledBytes: number;
  readonly totalBytes: number;
  /** Why it failed, or what it waits for. */
  readonly message: string;
  readonly load: EngineLoad;
  readonly info?: EngineInfo | undefined;
  /** The code of a failed one, which decides whether it may recover by itself. */
  readonly failureCode?: ErrorCode | undefined;
  /** Sequences of other masters' calls in the engine; absent if the worker does not count them. */
  readonly others?: number | undefined;
  /** This worker's part of a model that workers divide. */
  readonly stage?: ModelStage | undefined;
  /** The nodes with other parts that the last part does not reach. */
  readonly unreachable?: readonly UnreachablePeer[] | undefined;
}

export interface EngineLoad {
  /** Sequences in decode or prefill. */
  readonly running: number;
  readonly waiting: number;
  readonly maxSequences: number;
  readonly maxQueued: number;
  /** KV tokens of live sequences and cached prefixes. */
  readonly kvUsedTokens: number;
  readonly kvTokens: number;
  /** Since the engine started. */
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly generatedTokens: number;
  /** Tokens that were predicted and computed; absent where the engine does not say. */
  readonly draftTokens?: number | undefined;
  /** The number of them that were sampled. */
  readonly acceptedTokens?: number | undefined;
  readonly residentBytes: number;
  /** Restarts of the engine's process after a crash. */
  readonly restarts: number;
  /** The load of this part of a model that workers divide. */
  readonly stage?: StageLoad | undefined;
}

/**
 * How a model marks its reasoning. `tagged`: it writes `<think>` itself. `open`: its chat template
 * ends the prompt with that tag, so the answer begins inside.
 */
export type ReasoningStyle = "tagged" | "open";

/**
 * The origin of the chat template: the option, the model's file, the family of the vocabulary's
 * control tokens, or plain text for an unknown family.
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
  /** For example `llama.cpp v0.5.0 (cpu zen4)`. */
  readonly engine: string;
  readonly device: string;
  readonly contextTokens: number;
  readonly vocabularySize: number;
  readonly parameters: number;
  readonly fileType: string;
  /** Absent unless the model is known to reason. */
  readonly reasoning?: ReasoningStyle | undefined;
  /** It scores pairs of a query and a document, and gives no embeddings. */
  readonly ranks?: boolean | undefined;
  /** Absent if the worker is too old to report it. */
  readonly chatTemplate?: ChatTemplateOrigin | undefined;
}

/** The engine port. Events of all requests go to one sink, batched per engine step. */
export interface Engine {
  readonly info: EngineInfo;
  /** Never throws: a refusal is a `failed` event with this id. */
  submit(id: number, request: EngineRequest, options: SubmitOptions): void;
  /** Unknown ids are ignored: the request may have ended. */
  cancel(id: number): void;
  load(): EngineLoad;
  close(): Promise<void>;
}

export interface SubmitOptions {
  /** The unit of fair sharing: the key's id. */
  readonly fairKey: string;
  /** Cached prefixes serve only requests of the same salt. */
  readonly cacheSalt: string;
  /** Milliseconds from now until the request fails with `deadline_exceeded`; 0 for none. */
  readonly deadlineMs: number;
  /** Higher goes first; 0 is the default. */
  readonly priority: number;
}

export type EngineEventSink = (events: readonly EngineEvent[]) => void;
