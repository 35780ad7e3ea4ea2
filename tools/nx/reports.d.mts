/** Where the results of the package in `folder` are, from the repository's root. */
export function reportOf(folder: string): string;
