/**
 * Whether scopes grant a permission, such as `models:deploy`. A scope grants itself, `models:*` and
 * `models:admin` grant everything with the prefix `models:`, and `*` grants everything.
 */
export function grants(scopes: readonly string[], permission: string): boolean {
  for (const scope of scopes) {
    if (scope === "*" || scope === permission) return true;
    const group = groupOf(scope);
    if (group !== undefined && permission.startsWith(group)) return true;
  }
  return false;
}

/** The prefix, colon included, that a scope grants as a whole. */
function groupOf(scope: string): string | undefined {
  if (scope.endsWith(":*")) return scope.slice(0, -1);
  if (scope.endsWith(":admin")) return scope.slice(0, -"admin".length);
  return undefined;
}
