import { AppError } from "@heddle/base/errors";
import type {
  ChatMessage,
  EmbedRequest,
  Engine,
  EngineEvent,
  EngineEventSink,
  EngineFailure,
  EngineInput,
  FinishReason,
  GenerateRequest,
  PairInput,
  SubmitOptions,
  TokenLogprob,
  ToolDefinition,
  Usage,
} from "@heddle/contracts/engine";

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
export type Ask = Omit<Partial<GenerateRequest>, "sampling" | "input"> & {
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

/** For tests: an engine that is called by promises. */
export class EngineSession<E extends Engine = Engine> {
  readonly engine: E;
  readonly #pending: Map<number, Pending>;
  #nextId = 1;

  /** `start` gives the engine its sink. */
  static async over<E extends Engine>(
    start: (sink: EngineEventSink) => Promise<E>,
  ): Promise<EngineSession<E>> {
    return new EngineSession(...(await withPending(start)));
  }

  constructor(engine: E, pending: Map<number, Pending>) {
    this.engine = engine;
    this.#pending = pending;
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
      cacheSalt: "",
      deadlineMs: 0,
      priority: 0,
      ...ask.submit,
    });
    return { id, answer: promise };
  }

  /** Embeds the inputs; rejects with the failure. */
  async embed(inputs: readonly (string | readonly number[] | PairInput)[]): Promise<number[][]> {
    const id = this.#nextId++;
    const vectors: number[][] = [];
    const onEvent = (event: EngineEvent) => {
      if (event.type === "embedding") vectors[event.input] = [...event.values];
    };
    const { promise, resolve } = Promise.withResolvers<Answer>();
    this.#pending.set(id, { events: [], resolve, onEvent });
    const plain = inputs.map((input): EmbedRequest["inputs"][number] => {
      if (typeof input === "string") return { kind: "text", text: input };
      return "kind" in input ? input : { kind: "tokens", tokens: input };
    });
    const options = { fairKey: "test", cacheSalt: "", deadlineMs: 0, priority: 0 };
    this.engine.submit(id, { kind: "embed", inputs: plain }, options);
    const { error } = await promise;
    if (error !== undefined) throw new AppError(error.code, error.message, { param: error.param });
    return vectors;
  }

  /** The tokens of a chat's prompt. */
  async count(messages: readonly ChatMessage[]): Promise<number | undefined> {
    const id = this.#nextId++;
    let count: number | undefined;
    const onEvent = (event: EngineEvent) => {
      if (event.type === "reading") ({ count } = event);
    };
    const { promise, resolve } = Promise.withResolvers<Answer>();
    this.#pending.set(id, { events: [], resolve, onEvent });
    const input = { kind: "chat", messages } as const;
    const options = { fairKey: "test", cacheSalt: "", deadlineMs: 0, priority: 0 };
    this.engine.submit(id, { kind: "read", input, give: "count" }, options);
    await promise;
    return count;
  }

  ask(ask: Ask): Promise<Answer> {
    return this.submit(ask).answer;
  }

  async close(): Promise<void> {
    await this.engine.close();
  }
}

/** The engine, and the requests whose events its sink collects. */
export async function withPending<E extends Engine>(
  start: (sink: EngineEventSink) => Promise<E>,
): Promise<[E, Map<number, Pending>]> {
  const pending = new Map<number, Pending>();
  const engine = await start((events) => {
    for (const event of events) take(pending, event);
  });
  return [engine, pending];
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
