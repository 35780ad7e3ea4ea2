/** The parts of vitest's JSON report that the closing line is made of. */
interface TestReport {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
  readonly numTodoTests: number;
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly assertionResults: readonly {
      readonly fullName: string;
      readonly status: string;
      /** Of every try; a test that passed in the end may have some. */
      readonly failureMessages?: readonly string[];
    }[];
  }[];
}

/** `status` is vitest's exit status; `report` is undefined when it wrote none. */
export function summarize(
  report: TestReport | undefined,
  status: number,
): { readonly line: string; readonly unsteady: readonly string[]; readonly ok: boolean };
