/**
 * An id or a name as one part of a path. Throws a TypeError for one that would be no part at all, and
 * so would ask for something else.
 */
export function pathPart(id: string): string {
  if (id === "" || id === "." || id === "..") {
    throw new TypeError(`an id or a name was expected, got ${JSON.stringify(id)}`);
  }
  return encodeURIComponent(id);
}
