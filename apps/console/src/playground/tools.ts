import { STRINGS } from "../strings.ts";

/** The part of a request that offers tools. */
export interface OfferedTools {
  readonly tools?: readonly unknown[];
  readonly tool_choice?: "required";
}

/** A call that a model has begun to write. */
export interface WrittenCall {
  readonly index: number;
  readonly name: string;
  readonly arguments: string;
}

interface CallDelta {
  readonly index: number;
  readonly function?: {
    readonly name?: string | undefined;
    readonly arguments?: string | undefined;
  };
}

/** Parses a JSON list of tools; throws for another value. The masters check its items. */
export function readTools(text: string, mustCall: boolean): OfferedTools {
  if (text.trim() === "") return {};
  const tools: unknown = JSON.parse(text);
  if (!Array.isArray(tools)) throw new Error(STRINGS.playground.toolsAreList);
  return { tools, ...(mustCall && { tool_choice: "required" }) };
}

/** The calls with what a part of the stream adds to them. */
export function withCalls(
  calls: readonly WrittenCall[],
  deltas: readonly CallDelta[] = [],
): readonly WrittenCall[] {
  const all = [...calls];
  for (const { index, function: part } of deltas) {
    const { name, arguments: before } = all[index] ?? { name: "", arguments: "" };
    all[index] = {
      index,
      name: name + (part?.name ?? ""),
      arguments: before + (part?.arguments ?? ""),
    };
  }
  return all;
}
