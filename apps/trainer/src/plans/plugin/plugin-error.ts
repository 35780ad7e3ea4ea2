import { AppError } from "@heddle/base/errors";
import type { Environment, StepOutcome } from "@heddle/training/environments/environment";
import type { MakeEnvironment } from "@heddle/training/environments/environments";

const MAX_MESSAGE_CHARACTERS = 1_000;

/** Messages of JavaScript and of ONNX Runtime for exhausted memory. */
const MEMORY = /allocation failed|failed to allocate|out of memory|bad_alloc/i;

/**
 * An error in a plugin's code. It is `invalid_value` for a fault of the plugin, which a retry would
 * repeat, and `unavailable` for a system error.
 */
export class PluginError extends AppError {
  constructor(
    message: string,
    cause?: unknown,
    code: "invalid_value" | "unavailable" = "invalid_value",
  ) {
    super(code, message, { cause });
  }
}

/**
 * The error of a plugin's code, with the plugin's name. Heddle's own errors, such as a lost
 * parameter server, and exhausted memory are returned unchanged.
 */
export function pluginError(subject: string, thrown: unknown): unknown {
  const lines: string[] = [];
  let isOfSystem = false;
  for (let at: unknown = thrown; at instanceof Error; at = at.cause) {
    if (at instanceof AppError || MEMORY.test(at.message)) return thrown;
    isOfSystem ||= "errno" in at;
    lines.push(firstLine(lines.length === 0 ? `${at}` : at.message));
  }
  // The system's message may be only at the end of the chain.
  const reason = isOfSystem ? lines.join(": ") : (lines[0] ?? firstLine(`it threw ${thrown}`));
  const message = `${subject} failed: ${reason.slice(0, MAX_MESSAGE_CHARACTERS)}`;
  return new PluginError(message, thrown, isOfSystem ? "unavailable" : "invalid_value");
}

function firstLine(text: string): string {
  return text.split("\n", 1)[0] ?? "";
}

/** A plugin's environment, each of whose faults is thrown as a PluginError. */
export function guardedEnvironment(name: string, make: MakeEnvironment): MakeEnvironment {
  const subject = `the plugin's environment ${name}`;
  return () => {
    const made = attempt(subject, make);
    checkForm(subject, made);
    const { observations, actions, continuous, maxSteps } = made;
    return {
      name: made.name,
      observations,
      actions,
      continuous,
      maxSteps,
      reset: (random, seen) => attempt(subject, () => made.reset(random, seen)),
      step: (action, seen) => {
        const outcome: Partial<StepOutcome> | undefined = attempt(subject, () =>
          made.step(action, seen),
        );
        if (typeof outcome?.reward === "number") return outcome as StepOutcome;
        throw new PluginError(`${subject} gives no number as the \`reward\` of a step`);
      },
      ...(made.snapshot && { snapshot: () => attempt(subject, () => made.snapshot?.() ?? []) }),
      ...(made.restore && {
        restore: (numbers: readonly number[]) => attempt(subject, () => made.restore?.(numbers)),
      }),
    };
  };
}

function checkForm(subject: string, made: Environment): void {
  if (typeof made !== "object" || made === null)
    throw new PluginError(`${subject} is not an object`);
  for (const field of ["observations", "actions", "maxSteps"] as const) {
    if (Number.isInteger(made[field]) && made[field] > 0) continue;
    throw new PluginError(`${subject} has \`${field}\` ${made[field]}: a whole number above 0`);
  }
  for (const field of ["reset", "step"] as const) {
    if (typeof made[field] !== "function") throw new PluginError(`${subject} has no \`${field}\``);
  }
}

function attempt<Result>(subject: string, work: () => Result): Result {
  try {
    return work();
  } catch (error) {
    throw pluginError(subject, error);
  }
}
