import { AppError, type ErrorCode, isErrorCode } from "@heddle/base/errors";
import { RequestFaults, type ValidationFault, validate } from "@heddle/contracts/validation";
import { z } from "zod";
import type { PluginRegistry } from "../loading/plugin-registry.ts";
import { type BlockJob, blockJob } from "../points/blocks.ts";
import type { SinkEvent } from "../points/events.ts";
import { type ExecutorQuestion, executorJobs, executorOffer } from "../points/executors.ts";
import type {
  AdmissionAnswer,
  AdmittedJob,
  CandidateNode,
  Submission,
  WaitingJob,
} from "../points/jobs.ts";
import type { PluginRoute, RouteCaller, RouteEvent, RouteRequest } from "../points/routes.ts";

/** A route's request as it crosses to the plugin's process. */
export interface RouteCall {
  readonly point: "route";
  readonly key: string;
  readonly params: Readonly<Record<string, string>>;
  readonly query: unknown;
  readonly body: unknown;
  readonly caller: RouteCaller | undefined;
}

interface AdmissionCall {
  readonly point: "admission";
  readonly name: string;
  readonly job: AdmittedJob;
  readonly submission: Submission;
}

/** Which nodes the plugin's filters and scores choose for jobs. */
interface NodesCall {
  readonly point: "nodes";
  readonly jobs: readonly WaitingJob[];
  readonly nodes: readonly CandidateNode[];
}

interface EventsCall {
  readonly point: "events";
  readonly name: string;
  readonly events: readonly SinkEvent[];
}

/** The job of a step of a block. */
interface BlockCall {
  readonly point: "block";
  readonly name: string;
  readonly config: unknown;
  /** The step's inputs. */
  readonly inputs: readonly string[];
}

interface ExecutorCall {
  readonly point: "executor";
  readonly name: string;
  readonly question: ExecutorQuestion;
}

export type PluginCall =
  | RouteCall
  | AdmissionCall
  | NodesCall
  | EventsCall
  | BlockCall
  | ExecutorCall;

/** For each job of the call: the nodes that are excluded, and the scores, by position. */
export type NodesAnswer = readonly {
  readonly excluded: readonly number[];
  readonly scores: readonly number[];
}[];

/** Whether a call must end; the signal is made when it is asked for. */
interface CallSignal {
  readonly signal: AbortSignal;
  readonly isEnded: boolean;
}

/** As they are before a plugin replaces them. */
const { parse, stringify } = JSON;

/** Characters of a route's answer, of an event of a stream, and of what becomes part of a job. */
const MAX_ANSWER_CHARACTERS = 16_777_216;
const MAX_EVENT_CHARACTERS = 262_144;
const MAX_JOB_CHARACTERS = 1_048_576;

/** Runs calls on what a plugin has added: in its own process, or in the master's. */
export class PluginCalls {
  readonly #registry: PluginRegistry;
  /** By their keys. Not a map, whose `get` a plugin may replace. */
  readonly #routes: Readonly<Record<string, PluginRoute | undefined>>;

  constructor(registry: PluginRegistry) {
    this.#registry = registry;
    this.#routes = Object.assign(Object.create(null), Object.fromEntries(registry.routes));
  }

  /**
   * The answer: JSON text of a route, an AdmissionAnswer, a NodesAnswer, a BlockJob, of executors.
   * Only a route that answers at once gives no promise, as a hot path needs none.
   */
  call(call: PluginCall, limit: CallSignal): unknown {
    return call.point === "route" ? this.#answer(call, limit) : this.#ask(call);
  }

  async #ask(call: Exclude<PluginCall, RouteCall>): Promise<unknown> {
    if (call.point === "admission") return this.#review(call);
    if (call.point === "events") return this.#deliver(call);
    if (call.point === "block") return this.#job(call);
    if (call.point === "executor") return this.#execute(call);
    return this.#nodes(call);
  }

  #answer(call: RouteCall, limit: CallSignal): string | Promise<string> {
    const route = this.#route(call.key);
    const value = route.handle(requestOf(route, call, limit));
    if (isThenable(value)) return laterText(route, value);
    return textOf(route, value);
  }

  /** The events of a stream as text, until it ends or the signal aborts. */
  async *stream(call: RouteCall, limit: CallSignal): AsyncGenerator<string> {
    const route = this.#route(call.key);
    const events = await route.handle(requestOf(route, call, limit));
    if (typeof (events as AsyncIterable<unknown>)?.[Symbol.asyncIterator] !== "function") {
      throw new Error("its `handle` gives no async iterable of events");
    }
    for await (const given of events as AsyncIterable<RouteEvent>) {
      if (limit.isEnded) return;
      const { event, data } = given ?? {};
      const schema = Object.hasOwn(route.events ?? {}, event) ? route.events?.[event] : undefined;
      if (!schema)
        throw new Error(`it gives the event ${String(event)}, which it does not declare`);
      const what = `its event ${event}`;
      const json = jsonOf(checked(schema, data, what), what, MAX_EVENT_CHARACTERS);
      yield `event: ${event}\ndata: ${json}\n\n`;
    }
  }

  #route(key: string): PluginRoute {
    const route = this.#routes[key];
    if (!route) throw new Error(`there is no route ${key}`);
    return route;
  }

  async #review(call: AdmissionCall): Promise<AdmissionAnswer> {
    const { name, job, submission } = call;
    const rule = this.#registry.admission.get(name);
    if (!rule) throw new Error(`there is no admission rule ${name}`);
    const answer: unknown = await rule.review(job, submission);
    if (answer === undefined) return undefined;
    return partOfJob(answerTo(call, answer) as AdmissionAnswer, "its answer");
  }

  async #deliver({ name, events }: EventsCall): Promise<void> {
    const sink = this.#registry.sinks.get(name);
    if (!sink) throw new Error(`there is no event sink ${name}`);
    await sink.deliver(events);
  }

  async #job(call: BlockCall): Promise<BlockJob> {
    const { name, config, inputs } = call;
    const block = this.#registry.blocks.get(name);
    if (!block) throw new Error(`there is no block ${name}`);
    const parsed = validate(block.config, config);
    // Its worker parses the config again.
    if (!block.job) return partOfJob({ config: config as Record<string, unknown> }, "its config");
    const job = answerTo(call, await block.job({ config: parsed, inputs }));
    return partOfJob(job as BlockJob, "its job");
  }

  async #execute(call: ExecutorCall): Promise<unknown> {
    const { name, question } = call;
    const executor = this.#registry.executors.get(name);
    if (!executor) throw new Error(`there is no executor ${name}`);
    switch (question.ask) {
      case "offer":
        return answerTo(call, await executor.offer());
      case "list":
        return answerTo(call, await executor.list(question.prefix));
      case "submit":
        return executor.submit(question.job);
      case "cancel":
        return executor.cancel(question.job);
    }
  }

  #nodes({ jobs, nodes }: NodesCall): NodesAnswer {
    const { filters, scores } = this.#registry;
    return jobs.map((job) => ({
      excluded: [...nodes.keys()].filter((at) =>
        [...filters.values()].some((rule) => !decided(rule.name, rule.admits(job, nodes[at]!))),
      ),
      scores:
        scores.size === 0
          ? []
          : nodes.map((node) => {
              let sum = 0;
              for (const rule of scores.values()) sum += finite(rule.name, rule.score(job, node));
              return sum;
            }),
    }));
  }
}

const admissionAnswer = z.union([
  z.strictObject({ change: z.record(z.string(), z.unknown()) }),
  z.strictObject({ refuse: z.string().min(1).max(2_000), param: z.string().max(200).optional() }),
]);

/** The answer to a call. Throws where it is invalid: a plugin's process may send anything. */
export function answerTo(call: PluginCall, value: unknown): unknown {
  switch (call.point) {
    case "route":
      if (typeof value === "string") return value;
      throw new Error("its answer is no text");
    case "admission":
      return checked(admissionAnswer.optional(), value, "its answer");
    case "block":
      return checked(blockJob, value, "its job");
    case "executor":
      if (call.question.ask === "offer") return checked(executorOffer, value, "its offer");
      if (call.question.ask === "list") return checked(executorJobs, value, "its list");
      return undefined;
    default:
      // The master that asks about nodes goes without an invalid answer.
      return value;
  }
}

function requestOf(
  route: PluginRoute,
  call: RouteCall,
  limit: CallSignal,
): RouteRequest<never, never> {
  const { params, query, body, caller } = call;
  return {
    params,
    query: (route.query ? validate(route.query, query) : {}) as never,
    body: (route.body ? validate(route.body, body) : {}) as never,
    caller,
    get signal() {
      return limit.signal;
    },
  };
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | undefined)?.then === "function";
}

async function laterText(route: PluginRoute, value: PromiseLike<unknown>): Promise<string> {
  return textOf(route, await value);
}

/** The text of a route's answer. */
function textOf({ reply }: PluginRoute, value: unknown): string {
  if (!reply) return "";
  return jsonOf(checked(reply, value, "its answer"), "its answer", MAX_ANSWER_CHARACTERS);
}

/** What is not as declared is a fault of the plugin, not of its caller. */
function checked<Schema extends z.ZodType>(schema: Schema, value: unknown, what: string) {
  const { data, error } = schema.safeParse(value);
  if (!error) return data as z.output<Schema>;
  const [first] = error.issues;
  throw new Error(
    `${what} is not as its schema says: ${first?.path.join(".") || "it"}: ${first?.message}`,
  );
}

/** A copy of it: only data crosses. */
function partOfJob<Part>(part: Part, what: string): Part {
  return parse(jsonOf(part, what, MAX_JOB_CHARACTERS)) as Part;
}

/** Throws where it has no JSON, or more characters than it may. */
export function jsonOf(value: unknown, what: string, max: number): string {
  const text = stringify(value);
  if (text === undefined) throw new Error(`${what} has no JSON`);
  if (text.length <= max) return text;
  throw new Error(`${what} has ${text.length} characters, more than ${max}`);
}

/** A promise would count as true for every node. */
function decided(name: string, value: unknown): boolean {
  if (!isThenable(value)) return Boolean(value);
  throw new Error(`the filter ${name} gives a promise: give true or false`);
}

function finite(name: string, value: unknown): number {
  if (typeof value === "number" && Number.isFinite(value)) return value;
  throw new Error(`the score ${name} gives ${String(value)}: give a finite number`);
}

/** An error as it crosses from the plugin's process. */
export interface CallError {
  /** Absent: a fault of the plugin. */
  readonly code?: ErrorCode | undefined;
  readonly message: string;
  readonly param?: string | undefined;
  readonly faults?: readonly ValidationFault[] | undefined;
}

const MAX_MESSAGE_CHARACTERS = 2_000;
const MAX_PARAM_CHARACTERS = 200;

export function callErrorOf(thrown: unknown): CallError {
  try {
    return shownError(thrown);
  } catch {
    return { message: "it threw what cannot be shown" };
  }
}

/** Throws where a part of the error does. */
function shownError(thrown: unknown): CallError {
  const { message, stack } = thrown instanceof Error ? thrown : { message: String(thrown) };
  if (!isRefusal(thrown)) return { message: (stack ?? message).slice(0, MAX_MESSAGE_CHARACTERS) };
  const { code, param, cause } = thrown;
  const faults = cause instanceof RequestFaults ? cause.faults : undefined;
  return {
    code,
    param: param === undefined ? undefined : String(param).slice(0, MAX_PARAM_CHARACTERS),
    message: String(message).slice(0, MAX_MESSAGE_CHARACTERS),
    faults,
  };
}

/** Also an error of another copy of the kit. */
function isRefusal(thrown: unknown): thrown is AppError {
  return (
    thrown instanceof Error && thrown.name === "AppError" && isErrorCode((thrown as AppError).code)
  );
}

/** The refusal that the caller sees; undefined for a fault of the plugin. */
export function callRefusal({ code, message, param, faults }: CallError): AppError | undefined {
  if (code === undefined) return undefined;
  return new AppError(code, message, { param, cause: faults && new RequestFaults(faults) });
}
