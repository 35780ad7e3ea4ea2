/**
 * Reads responses without trusting their shape: absent or malformed members become neutral values,
 * so that an older command line can read a newer cluster.
 */
export type JsonFields = Readonly<Record<string, unknown>>;

export function fieldsOf(value: unknown): JsonFields {
  return typeof value === "object" && value !== null ? { ...value } : {};
}

export function recordsOf(value: unknown): JsonFields[] {
  return Array.isArray(value) ? value.map(fieldsOf) : [];
}

export function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** The strings of a list. */
export function textsOf(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((each) => typeof each === "string") : [];
}

export function numberOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}
