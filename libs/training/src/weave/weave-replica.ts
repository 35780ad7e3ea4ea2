import { AppError } from "@heddle/base/errors";
import type { CompiledProgram, Tensors } from "../backend.ts";
import type { PushTerms } from "../parameter-client.ts";
import { fragmentRanges, type ParameterRange } from "../sharding/fragments.ts";
import { localStepsOf, nextName, zeroState } from "../training-program.ts";
import type { FragmentExchange } from "./fragment-exchange.ts";
import type { WeaveConfig, WeaveProgress, WeaveWorkerOptions } from "./weave-options.ts";
import { weaveSchedule } from "./weave-schedule.ts";

/** The prefix of the worker's own copy of the model in its state, beside the inner optimizer's. */
const LOCAL = "local.";
/** The round of that copy, one number. */
const LOCAL_ROUND = "local_round";

/**
 * One worker's copy of the model and its inner optimizer. Between two exchanges of a fragment its
 * own values continue from `exchange.shared`; their displacement is the fragment's part.
 */
export class WeaveReplica {
  /** The share of its own values that it keeps when a fragment returns. */
  readonly mixing: number;
  /** The ranges of each fragment. */
  readonly ranges: readonly (readonly ParameterRange[])[];
  readonly #options: WeaveWorkerOptions;
  readonly #exchange: FragmentExchange;
  readonly #programs: LocalPrograms;
  readonly #state: Record<string, Float32Array>;
  #step = 0;
  #losses: number[] = [];
  #norms: number[] = [];
  #learningRate = 0;

  constructor(options: WeaveWorkerOptions, exchange: FragmentExchange) {
    const { config, program, optimizer } = options;
    const { fragments = 1, mixing_factor = 0 } = config;
    this.mixing = mixing_factor;
    this.#options = options;
    this.#exchange = exchange;
    const specs = program.parameters.map(({ name, shape }) => ({
      name,
      shape,
      type: "f32" as const,
    }));
    this.ranges = fragmentRanges(specs, fragments);
    this.#programs = new LocalPrograms(options);
    const zeros = zeroState(program, optimizer);
    const kept = options.state ?? zeros;
    this.#state = Object.fromEntries(
      Object.entries(zeros).map(([name, zero]) => [name, kept[name] ?? zero]),
    );
  }

  /** Begins after `done` rounds: with its own copy of that round, or with the servers'. */
  resume(done: number): void {
    const { config, parameters, state = {} } = this.#options;
    this.#step = weaveSchedule(config).stepAfter(done);
    const isOwn = state[LOCAL_ROUND]?.[0] === done;
    for (const [name, data] of Object.entries(parameters)) {
      data.set((isOwn ? state[`${LOCAL}${name}`] : undefined) ?? this.#exchange.shared[name] ?? []);
    }
  }

  /** Runs local steps until `step`, in one run. */
  async trainTo(step: number): Promise<void> {
    const { config, parameters, batches } = this.#options;
    const [before, steps] = [this.#step, step - this.#step];
    const rates = Float32Array.from({ length: steps }, (_, i) => rateAt(config, before + i));
    const compiled = await this.#programs.of(steps);
    const feeds = { ...parameters, ...this.#state, ...batches(steps) };
    const results = await compiled.run({ ...feeds, learning_rate: rates });
    this.#losses.push(...checkedLosses(results, before));
    this.#norms.push(...(results["gradient_norm"] ?? []));
    this.#learningRate = rates.at(-1) ?? 0;
    this.#step = step;
    for (const tensors of [parameters, this.#state]) {
      for (const [name, data] of Object.entries(tensors)) data.set(results[nextName(name)] ?? []);
    }
  }

  /** Begins to send a fragment's displacement, in a gradient's direction: before less after. */
  begin(fragment: number, round: number, terms: PushTerms): void {
    const { shared, part } = this.#exchange;
    this.#each(fragment, (name, begin, end) => {
      const [before, after] = [shared[name], this.#options.parameters[name]];
      const moved = part[name];
      if (!before || !after || !moved) return;
      for (let i = begin; i < end; i++) moved[i] = (before[i] ?? 0) - (after[i] ?? 0);
    });
    this.#exchange.begin(fragment, round, terms);
  }

  /** Takes a fragment's new values, mixed with its own. */
  merge(fragment: number, mixing: number): void {
    this.#each(fragment, (name, begin, end) => {
      const [theirs, own] = [this.#exchange.shared[name], this.#options.parameters[name]];
      if (!theirs || !own) return;
      if (mixing === 0) own.set(theirs.subarray(begin, end), begin);
      else {
        for (let i = begin; i < end; i++) {
          own[i] = mixing * (own[i] ?? 0) + (1 - mixing) * (theirs[i] ?? 0);
        }
      }
    });
  }

  /** The report of a round; resets the sums for the next. */
  report(round: number): Pick<WeaveProgress, "loss" | "gradientNorm" | "learningRate" | "state"> {
    const [loss, gradientNorm] = [mean(this.#losses), mean(this.#norms)];
    this.#losses = [];
    this.#norms = [];
    return { loss, gradientNorm, learningRate: this.#learningRate, state: this.#ownState(round) };
  }

  close(): Promise<void> {
    return this.#programs.close();
  }

  /** Its own copy equals the servers' where the whole model has just been pulled. */
  #ownState(round: number): Readonly<Record<string, Float32Array>> {
    const { config, parameters } = this.#options;
    if (!isStreaming(config)) return this.#state;
    const own = Object.entries(parameters).map(
      ([name, data]) => [`${LOCAL}${name}`, data] as const,
    );
    return { ...this.#state, ...Object.fromEntries(own), [LOCAL_ROUND]: Float32Array.of(round) };
  }

  #each(fragment: number, work: (name: string, begin: number, end: number) => void): void {
    for (const { parameter, begin, end } of this.ranges[fragment] ?? [])
      work(parameter, begin, end);
  }
}

/**
 * Runs between two exchanges have a few lengths, and a warm start's has its own; each is a program.
 */
const MAX_PROGRAMS = 6;

/** Compiled programs by their number of local steps. */
class LocalPrograms {
  readonly #options: WeaveWorkerOptions;
  readonly #compiled = new Map<number, CompiledProgram>();

  constructor(options: WeaveWorkerOptions) {
    this.#options = options;
  }

  async of(steps: number): Promise<CompiledProgram> {
    const { backend, program, optimizer, config } = this.#options;
    const known = this.#compiled.get(steps);
    this.#compiled.delete(steps);
    if (known) {
      this.#compiled.set(steps, known);
      return known;
    }
    await this.#makeRoom(isStreaming(config) ? MAX_PROGRAMS : 1);
    const rules = { optimizer, maxGradientNorm: config.max_grad_norm };
    const compiled = await backend.compile(localStepsOf(program, rules, steps));
    this.#compiled.set(steps, compiled);
    return compiled;
  }

  /** Drops the least recently used ones. */
  async #makeRoom(max: number): Promise<void> {
    for (const [steps, compiled] of this.#compiled) {
      if (this.#compiled.size < max) return;
      this.#compiled.delete(steps);
      await compiled.close();
    }
  }

  async close(): Promise<void> {
    for (const compiled of this.#compiled.values()) await compiled.close();
    this.#compiled.clear();
  }
}

/** Whether a worker's own copy differs from the servers' at the end of any round. */
function isStreaming({
  fragments = 1,
  overlap_steps = 0,
  mixing_factor = 0,
}: WeaveConfig): boolean {
  return fragments > 1 || overlap_steps > 0 || mixing_factor > 0;
}

function rateAt({ learning_rate, warmup_steps, total_steps }: WeaveConfig, step: number): number {
  if (step < warmup_steps) return (learning_rate * (step + 1)) / warmup_steps;
  const part = (step - warmup_steps) / Math.max(1, total_steps - warmup_steps);
  return learning_rate * (0.1 + 0.45 * (1 + Math.cos(Math.PI * Math.min(1, part))));
}

function checkedLosses(results: Tensors, before: number): Float32Array {
  const losses = results["loss"] as Float32Array;
  const bad = losses.findIndex((loss) => !Number.isFinite(loss));
  if (bad === -1) return losses;
  throw new AppError(
    "invalid_value",
    `the loss is ${losses[bad]} at step ${before + bad + 1}: training has diverged. ` +
      "Lower learning_rate, lengthen warmup_steps, or look for bad numbers in the data",
  );
}

function mean(numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0) / Math.max(1, numbers.length);
}
