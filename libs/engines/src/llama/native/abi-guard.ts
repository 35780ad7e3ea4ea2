import { AppError } from "@heddle/base/errors";
import {
  CONTEXT_DEFAULTS,
  type ContextParams,
  MODEL_DEFAULTS,
  type ModelParams,
} from "./layouts.ts";
import { LIBRARY_RELEASE, type NativeLibrary } from "./native-library.ts";

/** What `llama_version()` of the pinned libraries answers. */
export const LLAMA_VERSION = "0.5.0-dev";

/**
 * Refuses libraries whose struct layouts are not ours: a wrong layout would not fail but compute
 * nonsense. Throws `unavailable` that names every member that differs.
 */
export function checkAbi(
  llama: {
    version(): string;
    model_default_params(): ModelParams;
    context_default_params(): ContextParams;
  },
  library: NativeLibrary,
): void {
  const found = llama.version();
  const differences = [
    ...(found === LLAMA_VERSION ? [] : [`version is ${found}, not ${LLAMA_VERSION}`]),
    ...differing(MODEL_DEFAULTS, llama.model_default_params()),
    ...differing(CONTEXT_DEFAULTS, llama.context_default_params()),
  ];
  if (differences.length === 0) return;
  throw new AppError(
    "unavailable",
    `${library.llamaPath} does not match this program's layouts (${differences.join("; ")}); ` +
      `install ${library.packageName}@${LIBRARY_RELEASE}`,
  );
}

function differing(expected: object, found: object): string[] {
  const values = found as Record<string, unknown>;
  return Object.entries(expected)
    .filter(([name, value]) => !sameValue(value, values[name]))
    .map(([name, value]) => `${name} is ${values[name]}, not ${value}`);
}

/** koffi gives 64-bit integers as numbers or bigints, whichever holds them. */
function sameValue(expected: unknown, found: unknown): boolean {
  if (expected === null) return found === null || found === 0n;
  return typeof found === "bigint"
    ? BigInt(expected as number) === found
    : Object.is(expected, found);
}
