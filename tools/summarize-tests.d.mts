/** The parts of a file in vitest's JSON report that the closing line is made of. */
interface TestFileResult {
  readonly name: string;
  readonly status: string;
  /** Why the file could not be loaded. */
  readonly message?: string;
  readonly assertionResults: readonly {
    readonly fullName: string;
    readonly status: string;
    /** The failures of every try; a test that passed in the end may have some. */
    readonly failureMessages?: readonly string[];
  }[];
}

/** `status` is the exit status of the run. */
export function summarize(
  files: readonly TestFileResult[],
  status: number,
): {
  readonly line: string;
  readonly unsteady: readonly string[];
  readonly failures: readonly string[];
  readonly ok: boolean;
};
