/** Variables that select what tests run. */
export const TEST_ENVIRONMENT: readonly string[];

/** What Nx calls for the projects and their targets. */
export const createNodesV2: readonly [
  pattern: string,
  create: (files: readonly string[]) => readonly (readonly [file: string, result: object])[],
];
