import type { PluginPlan } from "@heddle/training/plugins/plugin";
import type { RoundReport } from "@heddle/training/training-loop";
import { PluginError } from "./plugin-error.ts";

const MAX_FRAGMENTS = 32;

/**
 * Throws a PluginError that names the field or parameter where a plugin's plan is malformed.
 * Plugins are JavaScript, so no compiler has checked it.
 */
export function checkPluginPlan(algorithm: string, given: unknown): asserts given is PluginPlan {
  const refuse: Refuse = (what) => {
    throw new PluginError(`the plan of the plugin's algorithm ${algorithm} ${what}`);
  };
  if (!isRecord(given)) refuse("is not an object");
  if (typeof given["then"] === "function") refuse("is a promise: give the plan itself");
  checkParameters(given["parameters"], refuse);
  checkServers(given["servers"], refuse);
  for (const field of ["rounds", "pushesPerRound"]) {
    if (!isCount(given[field])) refuse(`has \`${field}\` ${shown(given[field])}: ${COUNT}`);
  }
  checkFragments(given, refuse);
  for (const field of ["stepAfter", "run"]) {
    if (typeof given[field] !== "function") refuse(`has no function \`${field}\``);
  }
  const { artifacts } = given;
  if (artifacts !== undefined && typeof artifacts !== "function") {
    refuse("has `artifacts` that is not a function");
  }
}

/** Throws a PluginError where a plugin's report of a round is malformed. */
export function checkReport(
  subject: string,
  given: unknown,
  rounds: number,
): asserts given is RoundReport {
  const refuse: Refuse = (what) => {
    throw new PluginError(`${subject} reports ${what}`);
  };
  if (!isRecord(given)) refuse(`${shown(given)}: give {round, step, loss, metrics, state}`);
  const { round, step, metrics, state, reward } = given;
  if (!isCount(round) || round > rounds) {
    refuse(`a round with \`round\` ${shown(round)}: give 1 to its plan's \`rounds\`, ${rounds}`);
  }
  if (!Number.isFinite(step)) refuse(`a round with \`step\` ${shown(step)}: give a number`);
  // A NaN loss is reported as such, as for an update without one.
  if (typeof given["loss"] !== "number") refuse("a round without a number as its `loss`");
  if (reward !== undefined && typeof reward !== "number") {
    refuse(`a round with \`reward\` ${shown(reward)}: give a number, or leave it out`);
  }
  if (!isRecord(metrics)) refuse("a round without an object of numbers as its `metrics`");
  if (!isRecord(state) || !Object.values(state).every((each) => each instanceof Float32Array)) {
    refuse("a round without an object of Float32Arrays as its `state`");
  }
}

/** Throws a PluginError where a plugin's artifacts are not bytes by plain names. */
export function checkArtifacts(
  subject: string,
  given: unknown,
): asserts given is Readonly<Record<string, Uint8Array>> {
  const refuse: Refuse = (what) => {
    throw new PluginError(`${subject} gives ${what}`);
  };
  if (!isRecord(given)) refuse(`${shown(given)} as its \`artifacts\`: give an object of bytes`);
  if (typeof given["then"] === "function")
    refuse("a promise as its `artifacts`: give them at once");
  for (const [name, bytes] of Object.entries(given)) {
    const isPlain = !/[/\\\0]/.test(name) && !name.startsWith(".") && name !== "";
    if (!isPlain) refuse(`an artifact the name ${shown(name)}: no plain name`);
    if (OWN_ARTIFACTS.has(name))
      refuse(`an artifact the name ${name}, which the trainer writes itself`);
    if (!(bytes instanceof Uint8Array)) refuse(`no Uint8Array as its artifact ${shown(name)}`);
  }
}

const OWN_ARTIFACTS: ReadonlySet<string> = new Set(["lineage.json", "metrics.jsonl"]);

type Refuse = (what: string) => never;

const COUNT = "give a whole number above 0";

function checkParameters(given: unknown, refuse: Refuse): void {
  if (!Array.isArray(given) || given.length === 0) {
    refuse("has no `parameters`: give a list of {name, shape, init}");
  }
  const names = new Set<unknown>();
  for (const [at, parameter] of given.entries()) {
    const { name, shape, init } = isRecord(parameter) ? parameter : {};
    if (typeof name !== "string" || name === "") refuse(`has no \`name\` in parameters[${at}]`);
    if (names.has(name)) refuse(`has two parameters of the name ${shown(name)}`);
    names.add(name);
    const subject = `of the parameter ${shown(name)}`;
    if (!Array.isArray(shape) || !shape.every(isCount)) {
      refuse(`has \`shape\` ${shown(shape)} ${subject}: give a list of whole numbers above 0`);
    }
    const kinds = "give {kind: zeros}, {kind: ones}, {kind: normal, deviation} or";
    if (!isInitializer(init)) {
      refuse(`has \`init\` ${shown(init)} ${subject}: ${kinds} {kind: orthogonal, gain}`);
    }
  }
}

function isInitializer(given: unknown): boolean {
  if (!isRecord(given)) return false;
  switch (given["kind"]) {
    case "zeros":
    case "ones":
      return true;
    case "normal":
      return Number.isFinite(given["deviation"]);
    case "orthogonal":
      return Number.isFinite(given["gain"]);
    default:
      return false;
  }
}

function checkServers(given: unknown, refuse: Refuse): void {
  if (!isRecord(given)) refuse("has no `servers`: give {optimizer, learningRate}");
  const { optimizer, learningRate, maxGradientNorm } = given;
  checkOptimizer(optimizer, refuse);
  if (!isPositive(learningRate)) {
    refuse(`has \`servers.learningRate\` ${shown(learningRate)}: give a number above 0`);
  }
  if (maxGradientNorm !== undefined && !isPositive(maxGradientNorm)) {
    refuse(`has \`servers.maxGradientNorm\` ${shown(maxGradientNorm)}: give a number above 0`);
  }
}

function checkOptimizer(given: unknown, refuse: Refuse): void {
  const fields = isRecord(given) ? OPTIMIZERS.get(given["kind"]) : undefined;
  if (!isRecord(given) || !fields) {
    const kinds = [...OPTIMIZERS.keys()].join(", ");
    refuse(`has \`servers.optimizer\` ${shown(given)}: its kind is one of ${kinds}`);
  }
  for (const [field, isGood, what] of fields) {
    if (isGood(given[field])) continue;
    refuse(`has \`servers.optimizer.${field}\` ${shown(given[field])}: give ${what}`);
  }
}

type Field = readonly [name: string, isGood: (given: unknown) => boolean, what: string];

const SHARE = "a number from 0 to below 1";
const ADAM_FIELDS: readonly Field[] = [
  ["beta1", isShare, SHARE],
  ["beta2", isShare, SHARE],
  ["epsilon", isPositive, "a number above 0"],
  ["weightDecay", (given) => given === 0 || isPositive(given), "a number from 0"],
];
const OPTIMIZERS: ReadonlyMap<unknown, readonly Field[]> = new Map([
  [
    "sgd",
    [
      ["momentum", isShare, SHARE],
      ["nesterov", (given) => typeof given === "boolean", "true or false"],
    ],
  ],
  ["adam", ADAM_FIELDS],
  ["adamw", ADAM_FIELDS],
]);

function checkFragments(given: Readonly<Record<string, unknown>>, refuse: Refuse): void {
  const { fragments, servers } = given;
  if (fragments === undefined) return;
  if (!isCount(fragments) || fragments > MAX_FRAGMENTS) {
    refuse(`has \`fragments\` ${shown(fragments)}: leave it out, or give 1 to ${MAX_FRAGMENTS}`);
  }
  if (fragments === 1 || !isRecord(servers) || servers["maxGradientNorm"] === undefined) return;
  const why = "the norm of fragments is not known at one time";
  refuse(`has \`fragments\` and \`servers.maxGradientNorm\`: ${why}, so leave one of them out`);
}

function isRecord(given: unknown): given is Readonly<Record<string, unknown>> {
  return typeof given === "object" && given !== null;
}

function isCount(given: unknown): given is number {
  return Number.isSafeInteger(given) && (given as number) > 0;
}

function isShare(given: unknown): boolean {
  return Number.isFinite(given) && (given as number) >= 0 && (given as number) < 1;
}

function isPositive(given: unknown): boolean {
  return Number.isFinite(given) && (given as number) > 0;
}

/** Short, for a message; values that JSON lacks are shown as in JavaScript. */
function shown(given: unknown): string {
  const text = typeof given === "number" ? String(given) : (JSON.stringify(given) ?? String(given));
  return text.slice(0, 80);
}
