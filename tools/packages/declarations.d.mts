export function declarationsOf(
  root: string,
  entries: readonly string[],
  placeOf?: (path: string) => string,
): ReadonlyMap<string, string>;

export function placeOfTypes(path: string): string;
