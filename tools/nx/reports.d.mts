/** The results of one test file. */
export interface FileResult {
  readonly name: string;
  readonly assertionResults: readonly { readonly status: string }[];
}

/** Where the results of the package in `folder` are, from the repository's root. */
export function reportOf(folder: string): string;

/** A run of vitest that writes its results to a file too. */
export function vitestArguments(reportFile: string): string[];

/** The results of a report, a test file each; of one that vitest did not finish, none. */
export function readReport(file: string): readonly FileResult[];
