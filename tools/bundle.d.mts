/** Modules with native parts, by the beginnings of their names: packages of their own. */
export const EXTERNAL: readonly string[];
/** The license texts of the packages that the modules, given by their paths, are of. */
export function licensesOf(modules: readonly string[]): string;
