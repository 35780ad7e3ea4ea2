import type { PluginPlan } from "@heddle/training/plugins/plugin";
import { PluginError } from "./plugin-error.ts";

const MAX_FRAGMENTS = 32;

/**
 * Throws a PluginError where what a plugin gave as its plan is none, with the field or the parameter
 * that is at fault: plugins are JavaScript, in which nothing else has looked at it.
 */
export function checkPlan(algorithm: string, given: unknown): asserts given is PluginPlan {
  const tell: Tell = (what) => {
    throw new PluginError(`the plan of the plugin's algorithm ${algorithm} ${what}`);
  };
  if (!isRecord(given)) tell("is no object");
  if (typeof given["then"] === "function") tell("is a promise: give the plan itself");
  checkParameters(given["parameters"], tell);
  checkServers(given["servers"], tell);
  for (const field of ["rounds", "pushesPerRound"]) {
    if (!isCount(given[field])) tell(`has \`${field}\` ${shown(given[field])}: ${COUNT}`);
  }
  const { fragments } = given;
  if (fragments !== undefined && !(isCount(fragments) && fragments <= MAX_FRAGMENTS)) {
    tell(`has \`fragments\` ${shown(fragments)}: leave it out, or give 1 to ${MAX_FRAGMENTS}`);
  }
  for (const field of ["stepAfter", "run"]) {
    if (typeof given[field] !== "function") tell(`has no function \`${field}\``);
  }
  const { artifacts } = given;
  if (artifacts !== undefined && typeof artifacts !== "function") {
    tell("has `artifacts` that is no function");
  }
}

type Tell = (what: string) => never;

const COUNT = "give a whole number above 0";

function checkParameters(given: unknown, tell: Tell): void {
  if (!Array.isArray(given) || given.length === 0) {
    tell("has no `parameters`: give a list of {name, shape, init}");
  }
  const names = new Set<unknown>();
  for (const [at, parameter] of given.entries()) {
    const { name, shape, init } = isRecord(parameter) ? parameter : {};
    if (typeof name !== "string" || name === "") tell(`has no \`name\` in parameters[${at}]`);
    if (names.has(name)) tell(`has two parameters of the name ${shown(name)}`);
    names.add(name);
    const whose = `of the parameter ${shown(name)}`;
    if (!Array.isArray(shape) || !shape.every(isCount)) {
      tell(`has \`shape\` ${shown(shape)} ${whose}: give a list of whole numbers above 0`);
    }
    const kinds = "give {kind: zeros}, {kind: ones}, {kind: normal, deviation} or";
    if (!isInitializer(init)) {
      tell(`has \`init\` ${shown(init)} ${whose}: ${kinds} {kind: orthogonal, gain}`);
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

function checkServers(given: unknown, tell: Tell): void {
  if (!isRecord(given)) tell("has no `servers`: give {optimizer, learningRate}");
  const { optimizer, learningRate, maxGradientNorm } = given;
  if (!isRecord(optimizer) || !OPTIMIZERS.has(optimizer["kind"])) {
    const kinds = [...OPTIMIZERS].join(", ");
    tell(`has \`servers.optimizer\` ${shown(optimizer)}: its kind is one of ${kinds}`);
  }
  if (!isPositive(learningRate)) {
    tell(`has \`servers.learningRate\` ${shown(learningRate)}: give a number above 0`);
  }
  if (maxGradientNorm !== undefined && !isPositive(maxGradientNorm)) {
    tell(`has \`servers.maxGradientNorm\` ${shown(maxGradientNorm)}: give a number above 0`);
  }
}

const OPTIMIZERS: ReadonlySet<unknown> = new Set(["sgd", "adam", "adamw"]);

function isRecord(given: unknown): given is Readonly<Record<string, unknown>> {
  return typeof given === "object" && given !== null;
}

function isCount(given: unknown): given is number {
  return Number.isSafeInteger(given) && (given as number) > 0;
}

function isPositive(given: unknown): boolean {
  return Number.isFinite(given) && (given as number) > 0;
}

/** In a message, short; what JSON has no word for is told as JavaScript has it. */
function shown(given: unknown): string {
  const text = typeof given === "number" ? String(given) : (JSON.stringify(given) ?? String(given));
  return text.slice(0, 80);
}
