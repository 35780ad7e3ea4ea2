/** What is used of a mutant that Stryker has tried. Lines and columns count from 1. */
export interface TriedMutant {
  readonly fileName: string;
  readonly status: string;
  readonly replacement: string;
  readonly location: { readonly start: Position; readonly end: Position };
}

interface Position {
  readonly line: number;
  readonly column: number;
}

/** A mutant that behaves as the source does, so that no test can detect it, with the reason. */
export interface ExplainedMutant {
  /** From the repository's root. */
  readonly file: string;
  /** The source that is replaced; line breaks and indentation are one blank. */
  readonly code: string;
  /** Written in the same way. */
  readonly replacement: string;
  readonly reason: string;
}

export interface MissedMutant extends Omit<ExplainedMutant, "reason"> {
  readonly line: number;
  readonly covered: boolean;
}

export interface MutationScore {
  /** Killed, or timed out. */
  readonly detected: number;
  readonly timedOut: number;
  /** Survived or not covered, and not explained. */
  readonly missed: readonly MissedMutant[];
  readonly explained: number;
  /** Explanations of files that were tried that fit no survivor. */
  readonly stale: readonly ExplainedMutant[];
  /** The share of mutants that are detected, 0 to 100; of a sample an estimate. */
  readonly percent: number;
}

/** The least score that passes, in percent. */
export const MIN_SCORE = 85;

/** Scores mutants; `textOf` gives a file's text. Those outside a sample are `CompileError`: they count nowhere. */
export function scoreOf(
  mutants: readonly TriedMutant[],
  explanations: readonly ExplainedMutant[],
  textOf: (file: string) => string,
): MutationScore {
  const count = (...statuses: string[]) =>
    mutants.filter(({ status }) => statuses.includes(status)).length;
  const all = mutants
    .filter(({ status }) => status === "Survived" || status === "NoCoverage")
    .map((mutant) => describeMutant(mutant, textOf(mutant.fileName)));
  const missed = all.filter((mutant) => !explanations.some((each) => isSame(each, mutant)));
  const detected = count("Killed", "Timeout");
  const tried = detected + missed.length;
  const files = new Set(mutants.map(({ fileName }) => fileName));
  return {
    detected,
    missed,
    timedOut: count("Timeout"),
    explained: all.length - missed.length,
    stale: explanations.filter(
      (each) => files.has(each.file) && !all.some((mutant) => isSame(each, mutant)),
    ),
    percent: tried === 0 ? 100 : (100 * detected) / tried,
  };
}

function describeMutant(mutant: TriedMutant, text: string): MissedMutant {
  const { start, end } = mutant.location;
  const lines = text.split("\n").slice(start.line - 1, end.line);
  lines[lines.length - 1] = lines.at(-1)?.slice(0, end.column - 1) ?? "";
  lines[0] = lines[0]?.slice(start.column - 1) ?? "";
  return {
    file: mutant.fileName,
    line: start.line,
    code: oneLine(lines.join("\n")),
    replacement: oneLine(mutant.replacement),
    covered: mutant.status === "Survived",
  };
}

function oneLine(code: string): string {
  return code.trim().replaceAll(/\s+/g, " ");
}

function isSame(
  explanation: Pick<ExplainedMutant, "file" | "code" | "replacement">,
  { file, code, replacement }: MissedMutant,
): boolean {
  return (
    explanation.file === file &&
    explanation.code === code &&
    explanation.replacement === replacement
  );
}
