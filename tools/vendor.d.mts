/** Modules with native parts, by the beginnings of their names: packages of their own. */
export const EXTERNAL: readonly string[];
/** The file of a bundled module. */
export function fileOf(module: string): string;
