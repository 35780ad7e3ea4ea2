import { createHash } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import type { JobSpec } from "@heddle/contracts/api/job-spec";
import {
  type Block,
  blockId,
  type OutputPort,
  type PortType,
} from "@heddle/contracts/api/pipelines/blocks";
import type { JobInput } from "@heddle/contracts/api/pipelines/job-inputs";
import type { PipelineSpec, PipelineStep } from "@heddle/contracts/api/pipelines/spec";
import { check, RequestFaults, type ValidationFault } from "@heddle/contracts/validation";
import { canonicalJson } from "../../http/json-body.ts";

/** One job of a pipeline: a step, or a shard of one. */
export interface PlannedJob {
  readonly step: string;
  readonly shard: string | undefined;
  readonly block: string;
  readonly key: string;
  /** The steps before it. */
  readonly needs: readonly string[];
  /** The jobs before it, by their places in the plan. */
  readonly after: readonly number[];
  /** Its inputs from the jobs of other steps. */
  readonly inputs: readonly PlannedInput[];
  /** The rest of its spec. */
  readonly spec: Omit<JobSpec, "name">;
}

interface PlannedInput {
  readonly name: string;
  /** The place of the job in the plan. */
  readonly from: number;
  readonly artifact: string;
}

/** Jobs of one pipeline: a job depends on at most 256 others. */
const MAX_JOBS = 250;
/** Variables of a shard's job: its number, how many there are, and its name. */
const SHARD_VARIABLES = ["PIPELINE_SHARD", "PIPELINE_SHARDS", "PIPELINE_SHARD_NAME"] as const;

/** What the steps of a pipeline run. */
export interface StepBlocks {
  /** For each step its block or why a plugin refuses its config; without an entry there is none. */
  readonly bySteps: ReadonlyMap<string, Block | readonly ValidationFault[]>;
  /** The ids of all blocks. */
  readonly known: readonly string[];
}

interface KnownStep {
  readonly name: string;
  readonly step: PipelineStep;
  readonly block: Block;
  readonly config: never;
  readonly outputs: Readonly<Record<string, OutputPort>>;
  readonly shards: readonly string[] | undefined;
}

/** The jobs of a pipeline, each after those that it needs. Throws with all faults. */
export function planPipeline(spec: PipelineSpec, blocks: StepBlocks): readonly PlannedJob[] {
  const faults: ValidationFault[] = [];
  const fault = (param: string, message: string) =>
    faults.push({
      param,
      code: "invalid_value",
      message: `Invalid value for '${param}': ${message}.`,
    });
  const known = new Map<string, KnownStep>();
  for (const [name, step] of Object.entries(spec.steps)) {
    const read = readStep(name, step, blocks, faults);
    if (read) known.set(name, read);
  }
  for (const each of known.values()) edgeFaults(each, known, spec, fault);
  const order = ordered(spec, fault);
  if (faults.length > 0) throw refusal(faults);
  const jobs: PlannedJob[] = [];
  const places = new Map<string, number[]>();
  for (const name of order) {
    const made = jobsOf(known.get(name)!, known, places, jobs);
    places.set(
      name,
      made.map((_, at) => jobs.length + at),
    );
    jobs.push(...made);
  }
  if (jobs.length > MAX_JOBS) {
    fault("steps", `its steps and shards are ${jobs.length} jobs, expected at most ${MAX_JOBS}`);
    throw refusal(faults);
  }
  return jobs;
}

function refusal(faults: readonly ValidationFault[]): AppError {
  const { message, param } = faults[0]!;
  return new AppError("unprocessable", message, { param, cause: new RequestFaults(faults) });
}

function readStep(
  name: string,
  step: PipelineStep,
  { bySteps, known }: StepBlocks,
  faults: ValidationFault[],
) {
  const at = `steps.${name}`;
  const block = bySteps.get(name);
  if (!block) {
    const names = known.join(", ");
    const message = `Invalid value for '${at}.block': there is no block ${step.block}; there are ${names}.`;
    faults.push({ param: `${at}.block`, code: "invalid_value", message });
    return undefined;
  }
  if (!("job" in block)) {
    for (const each of block) faults.push(each);
    return undefined;
  }
  const { data, faults: found } = check(block.config, step.config);
  for (const each of configFaults(at, found)) faults.push(each);
  if (!data) return undefined;
  const config = data as never;
  const { shards } = step;
  const named =
    typeof shards === "number" ? Array.from({ length: shards }, (_, at) => `${at}`) : shards;
  return { name, step, block, config, outputs: block.outputs(config), shards: named };
}

/** Faults of the config of the step at `at`, with their places in the pipeline. */
export function configFaults(at: string, faults: readonly ValidationFault[]): ValidationFault[] {
  return faults.map((each) => {
    const param = `${at}.config${each.param === "" ? "" : `.${each.param}`}`;
    const message = each.message.replace(`'${each.param}'`, `'${param}'`);
    return { ...each, param, path: undefined, message };
  });
}

/** The faults of a step's inputs: unknown names, missing ones, and other types. */
function edgeFaults(
  { name, step, block }: KnownStep,
  known: ReadonlyMap<string, KnownStep>,
  { steps }: PipelineSpec,
  fault: (param: string, message: string) => void,
): void {
  const at = `steps.${name}`;
  for (const [input, { required }] of Object.entries(block.inputs)) {
    if (required && step.inputs[input] === undefined) {
      fault(`${at}.inputs`, `the block ${blockId(block)} needs the input ${input}`);
    }
  }
  for (const [input, text] of Object.entries(step.inputs)) {
    const param = `${at}.inputs.${input}`;
    const [source = "", output = ""] = splitEdge(text);
    const port = block.inputs[input];
    // A condition may read what the block itself does not.
    const isRead = step.when.some((condition) => condition.input === input);
    if (!port && !block.takesAny && !isRead) {
      const names = Object.keys(block.inputs).join(", ") || "none";
      fault(param, `the block ${blockId(block)} has no such input; it has ${names}`);
      continue;
    }
    if (!Object.hasOwn(steps, source)) {
      fault(param, `there is no step ${source}`);
      continue;
    }
    const from = known.get(source);
    if (!from) continue;
    const found = from.outputs[output];
    if (!found) {
      const names = Object.keys(from.outputs).join(", ") || "none";
      fault(param, `the step ${source} has no output ${output}; it has ${names}`);
    } else if (port && !fits(found.type, port.type)) {
      fault(param, `expected a ${port.type}, and ${text} is a ${found.type}`);
    }
  }
  for (const [place, each] of step.after.entries()) {
    if (!Object.hasOwn(steps, each)) fault(`${at}.after[${place}]`, `there is no step ${each}`);
  }
  for (const [place, { input }] of step.when.entries()) {
    if (step.inputs[input] !== undefined) continue;
    fault(`${at}.when[${place}].input`, `the step has no input ${input}`);
  }
  for (const variable of SHARD_VARIABLES) {
    if (!Object.hasOwn(step.environment_variables, variable)) continue;
    fault(`${at}.environment_variables.${variable}`, "the platform sets it");
  }
}

function fits(given: PortType, wanted: PortType): boolean {
  return wanted === "any" || given === "any" || given === wanted;
}

function splitEdge(text: string): [step: string, output: string] {
  const dot = text.indexOf(".");
  return [text.slice(0, dot), text.slice(dot + 1)];
}

function neededBy({ inputs, after }: PipelineStep): string[] {
  return [...new Set([...Object.values(inputs).map((text) => splitEdge(text)[0]), ...after])];
}

/** The steps, each after those that it needs; a cycle is a fault. */
function ordered(
  { steps }: PipelineSpec,
  fault: (param: string, message: string) => void,
): readonly string[] {
  const done = new Set<string>();
  const walk = (name: string, path: readonly string[]): void => {
    const step = steps[name];
    if (!step || done.has(name)) return;
    if (path.includes(name)) {
      const cycle = [...path.slice(path.indexOf(name)), name].join(" -> ");
      fault(`steps.${name}`, `the steps form a cycle: ${cycle}`);
      done.add(name);
      return;
    }
    for (const each of neededBy(step)) walk(each, [...path, name]);
    done.add(name);
  };
  for (const name of Object.keys(steps)) walk(name, []);
  return [...done];
}

/** The jobs of one step: one, or one for each shard. */
function jobsOf(
  known: KnownStep,
  steps: ReadonlyMap<string, KnownStep>,
  places: ReadonlyMap<string, readonly number[]>,
  jobs: readonly PlannedJob[],
): PlannedJob[] {
  const { name, step, block, config, shards } = known;
  const made = block.job(config, new Set(Object.keys(step.inputs)));
  const { inputs: own = [], ...runs } = made;
  const needs = neededBy(step);
  const after = step.after.flatMap((each) => places.get(each) ?? []);
  return (shards ?? [undefined]).map((shard, number) => {
    const inputs = Object.entries(step.inputs).flatMap(([input, text]) =>
      inputsOf(input, text, { known, number, steps, places }),
    );
    const variables = shard === undefined ? {} : shardVariables(number, shard, shards?.length ?? 1);
    const environment_variables = { ...step.environment_variables, ...variables };
    const key = keyOf([
      blockId(block),
      step.config,
      inputs.map(({ name: input, from, artifact }) => [input, jobs[from]!.key, artifact]),
      step.when,
      environment_variables,
      ...(step.secret_variables ? [step.secret_variables] : []),
    ]);
    const { retry_limit, max_runtime_hours, tasks, when, secret_variables } = step;
    const resources = step.resources ?? block.resources;
    const spec = {
      ...runs,
      environment_variables,
      ...(resources === undefined ? {} : { resources }),
      retry_limit,
      ...(max_runtime_hours === undefined ? {} : { max_runtime_hours }),
      ...(tasks === undefined ? {} : { tasks }),
      ...(secret_variables === undefined ? {} : { secret_variables }),
      ...(when.length === 0 ? {} : { when }),
      inputs: own as JobInput[],
    };
    return { step: name, shard, block: blockId(block), key, needs, after, inputs, spec };
  });
}

interface Shard {
  readonly known: KnownStep;
  readonly number: number;
  readonly steps: ReadonlyMap<string, KnownStep>;
  readonly places: ReadonlyMap<string, readonly number[]>;
}

/**
 * A shard takes the input of its own number from a step with as many shards. A step without
 * shards takes the inputs of all of them, as `NAME.0`, `NAME.1` and so on.
 */
function inputsOf(name: string, text: string, shard: Shard): PlannedInput[] {
  const { known, number, steps, places } = shard;
  const [source, output] = splitEdge(text);
  const from = places.get(source) ?? [];
  const { artifact } = steps.get(source)!.outputs[output]!;
  const [first] = from;
  if (first === undefined) return [];
  if (steps.get(source)!.shards === undefined) return [{ name, from: first, artifact }];
  const own = from[number];
  if (known.shards?.length === from.length && own !== undefined) {
    return [{ name, from: own, artifact }];
  }
  return from.map((place, at) => ({ name: `${name}.${at}`, from: place, artifact }));
}

function shardVariables(number: number, name: string, count: number): Record<string, string> {
  const values = [String(number), String(count), name];
  return Object.fromEntries(SHARD_VARIABLES.map((variable, at) => [variable, values[at] ?? ""]));
}

function keyOf(parts: unknown): string {
  const text = canonicalJson(Buffer.from(JSON.stringify({ parts })));
  return createHash("sha256").update(text).digest("hex");
}
