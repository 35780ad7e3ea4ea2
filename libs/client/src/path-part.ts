/**
 * Encodes an id or a name as one path segment. Throws a TypeError for one that would change the
 * path.
 */
export function pathPart(id: string): string {
  if (id === "" || id === "." || id === "..") {
    throw new TypeError(`an id or a name was expected, got ${JSON.stringify(id)}`);
  }
  return encodeURIComponent(id);
}
