import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import type {
  ChatMessage,
  EngineEvent,
  EngineFailure,
  EngineInput,
  EngineOptions,
  FinishReason,
  GenerateRequest,
  PlainInput,
  SubmitOptions,
  TokenLogprob,
  ToolDefinition,
  Usage,
} from "@heddle/contracts/engine";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import type { LivenessLimits } from "../parent/engine-child.ts";
import { type LlamaEngine, startLlamaEngine } from "../parent/llama-engine.ts";

/** Everything that one request brought. */
export interface Answer {
  readonly texts: string[];
  readonly reasons: (FinishReason | undefined)[];
  readonly logprobs: TokenLogprob[][];
  readonly deltas: string[];
  readonly deltaTokens: number;
  readonly cachedTokens: number;
  readonly order: EngineEvent["type"][];
  readonly usage: Usage | undefined;
  readonly error: EngineFailure | undefined;
}

/** What a test says of a request; the rest is greedy text without limits but 32 tokens. */
type Ask = Omit<Partial<GenerateRequest>, "sampling" | "input"> & {
  readonly prompt: string | readonly number[] | readonly ChatMessage[];
  /** With messages. */
  readonly tools?: readonly ToolDefinition[];
  readonly sampling?: Partial<GenerateRequest["sampling"]>;
  readonly submit?: Partial<SubmitOptions>;
};

interface Pending {
  readonly events: EngineEvent[];
  readonly resolve: (answer: Answer) => void;
  readonly onEvent: ((event: EngineEvent) => void) | undefined;
}

/** For tests: an engine in a real process, called by promises; without a path it writes a tiny model. */
export class TestSession {
  readonly engine: LlamaEngine;
  /** The reason of each restart of the engine. */
  readonly crashes: readonly string[];
  /** When it took requests again after that. */
  readonly recoveries: readonly number[];
  readonly #directory: string;
  readonly #pending: Map<number, Pending>;
  #nextId = 1;

  /** Use open. */
  constructor(
    engine: LlamaEngine,
    directory: string,
    pending: Map<number, Pending>,
    { crashes, recoveries }: Pick<TestSession, "crashes" | "recoveries">,
  ) {
    this.engine = engine;
    this.crashes = crashes;
    this.recoveries = recoveries;
    this.#directory = directory;
    this.#pending = pending;
  }

  static async open(
    options: EngineOptions = {},
    modelPath?: string,
    liveness?: LivenessLimits,
  ): Promise<TestSession> {
    const directory = await mkdtemp(join(tmpdir(), "heddle-engine-"));
    try {
      return await TestSession.#openIn(directory, options, modelPath, liveness);
    } catch (error) {
      await rm(directory, { recursive: true });
      throw error;
    }
  }

  static async #openIn(
    directory: string,
    options: EngineOptions,
    modelPath: string | undefined,
    liveness: LivenessLimits | undefined,
  ): Promise<TestSession> {
    const path = modelPath ?? join(directory, "tiny.gguf");
    if (modelPath === undefined) await writeTinyModel(path);
    const pending = new Map<number, Pending>();
    const crashes: string[] = [];
    const recoveries: number[] = [];
    const engine = await startLlamaEngine({
      modelPath: path,
      options: { threads: 1, ...options },
      liveness,
      onRestart: ({ message }) => crashes.push(message),
      onRecovered: () => recoveries.push(performance.now()),
      sink: (events) => {
        for (const event of events) take(pending, event);
      },
    });
    return new TestSession(engine, directory, pending, { crashes, recoveries });
  }

  /** Submits and gives the id with the promise of the whole answer. */
  submit(
    ask: Ask,
    onEvent?: (event: EngineEvent) => void,
  ): { id: number; answer: Promise<Answer> } {
    const id = this.#nextId++;
    const { promise, resolve } = Promise.withResolvers<Answer>();
    this.#pending.set(id, { events: [], resolve, onEvent });
    this.engine.submit(id, toRequest(ask), {
      fairKey: "test",
      deadlineMs: 0,
      priority: 0,
      ...ask.submit,
    });
    return { id, answer: promise };
  }

  /** Embeds the inputs; rejects with the failure. */
  async embed(inputs: readonly (string | readonly number[])[]): Promise<number[][]> {
    const id = this.#nextId++;
    const vectors: number[][] = [];
    const onEvent = (event: EngineEvent) => {
      if (event.type === "embedding") vectors[event.input] = [...event.values];
    };
    const { promise, resolve } = Promise.withResolvers<Answer>();
    this.#pending.set(id, { events: [], resolve, onEvent });
    const plain = inputs.map(
      (input): PlainInput =>
        typeof input === "string"
          ? { kind: "text", text: input }
          : { kind: "tokens", tokens: input },
    );
    const options = { fairKey: "test", deadlineMs: 0, priority: 0 };
    this.engine.submit(id, { kind: "embed", inputs: plain }, options);
    const { error } = await promise;
    if (error !== undefined) throw new AppError(error.code, error.message, { param: error.param });
    return vectors;
  }

  ask(ask: Ask): Promise<Answer> {
    return this.submit(ask).answer;
  }

  async close(): Promise<void> {
    await this.engine.close();
    await rm(this.#directory, { recursive: true });
  }
}

function toRequest({ prompt, tools, sampling, submit: _, ...rest }: Ask): GenerateRequest {
  return {
    input: toInput(prompt, tools),
    sampling: {
      temperature: 0,
      topP: 1,
      presencePenalty: 0,
      frequencyPenalty: 0,
      logitBias: [],
      ...sampling,
    },
    choices: 1,
    maxTokens: 32,
    stop: [],
    format: "text",
    ...rest,
  };
}

function toInput(prompt: Ask["prompt"], tools: Ask["tools"]): EngineInput {
  if (typeof prompt === "string") return { kind: "text", text: prompt };
  if (typeof prompt[0] === "object") {
    return { kind: "chat", messages: prompt as readonly ChatMessage[], tools };
  }
  return { kind: "tokens", tokens: prompt as readonly number[] };
}

function take(pending: Map<number, Pending>, event: EngineEvent): void {
  const request = pending.get(event.id);
  if (request === undefined) throw new Error(`an event for ended request ${event.id}`);
  request.events.push(event);
  request.onEvent?.(event);
  if (event.type !== "done" && event.type !== "failed") return;
  pending.delete(event.id);
  request.resolve(toAnswer(request.events));
}

function toAnswer(events: readonly EngineEvent[]): Answer {
  const texts: string[] = [];
  const reasons: (FinishReason | undefined)[] = [];
  const logprobs: TokenLogprob[][] = [];
  const deltas: string[] = [];
  let deltaTokens = 0;
  let cachedTokens = 0;
  let usage: Usage | undefined;
  let error: EngineFailure | undefined;
  for (const event of events) {
    if (event.type === "started") cachedTokens = event.cachedTokens;
    if (event.type === "finish") reasons[event.choice] = event.reason;
    if (event.type === "done") usage = event.usage;
    if (event.type === "failed") error = event.error;
    if (event.type !== "delta") continue;
    texts[event.choice] = (texts[event.choice] ?? "") + event.text;
    logprobs[event.choice] = [...(logprobs[event.choice] ?? []), ...(event.logprobs ?? [])];
    deltas.push(event.text);
    deltaTokens += event.tokens;
  }
  const order = events.map((event) => event.type);
  return { texts, reasons, logprobs, deltas, deltaTokens, cachedTokens, order, usage, error };
}
