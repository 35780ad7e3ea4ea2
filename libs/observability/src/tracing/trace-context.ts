/** A span as other processes know it, by the W3C's recommendation Trace Context. */
export interface TraceContext {
  /** 32 lower-case hexadecimal digits. */
  readonly traceId: string;
  /** 16 lower-case hexadecimal digits. */
  readonly spanId: string;
  readonly isSampled: boolean;
}

const FORM = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const MAX_CHARACTERS = 256;

/** The span that a `traceparent` names; undefined for anything else, as the recommendation asks. */
export function parseTraceParent(text: unknown): TraceContext | undefined {
  if (typeof text !== "string" || text.length > MAX_CHARACTERS) return undefined;
  const [, version, traceId = "", spanId = "", flags = "", rest] = FORM.exec(text) ?? [];
  if (version === undefined || version === "ff" || (version === "00" && rest)) return undefined;
  if (/^0+$/.test(traceId) || /^0+$/.test(spanId)) return undefined;
  return { traceId, spanId, isSampled: (Number.parseInt(flags, 16) & 1) === 1 };
}

/** The header, environment variable or field that names a span to another process. */
export function traceParentOf({ traceId, spanId, isSampled }: TraceContext): string {
  return `00-${traceId}-${spanId}-0${isSampled ? 1 : 0}`;
}
